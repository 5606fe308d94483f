"""What a Spark task does with its part of a batch: Arrow in, verdicts from `oncebus.detection`, Arrow out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Rows, Verdicts, judge, recall_nothing
from oncebus.detection.decision import Numbers
from oncebus.detection.keys import DIGEST_BYTES
from oncebus.durations import LONGEST
from oncebus.errors import OncebusError
from oncebus.ledger import Generation, Ledger, Owner, Writer
from oncebus.spark.columns import CLOCK, IS_DUPLICATE, KEY, ORIGINAL_SEQUENCE, ORIGINAL_TIME, TIE, BadColumn

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"


class NotInAQuery(OncebusError):
    """A streaming plan is evaluated where Spark does not tell which batch it is."""


@dataclass(frozen=True, slots=True)
class StreamLedger:
    """How the tasks of a streaming query find their place in the ledger."""

    location: str
    key: tuple[str, ...]
    parts: int
    owner: Owner
    follows: int | None


@dataclass(frozen=True, slots=True)
class FixedLedger:
    """How the tasks of a batch do."""

    location: str
    generation: Generation
    clock: int
    parts: int


@dataclass(frozen=True, slots=True)
class Task:
    """Everything a task has to know, made once on the driver. `window` is a column or microseconds."""

    time: str
    window: str | int
    lateness: int
    sequence: str | None
    ledger: StreamLedger | FixedLedger | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Judge one part of a batch. Nothing is yielded before all that is accepted has been published."""
        received = [batch for batch in batches if batch.num_rows]
        if self.ledger is None:
            if received:
                verdicts = judge(self._rows(pa.Table.from_batches(received)), recall_nothing, NO_HORIZON)
                yield from self._marked(received, verdicts)
        elif isinstance(self.ledger, FixedLedger):
            if received:
                yield from self._marked(received, self._judge_fixed(self.ledger, received))
        else:
            yield from self._judge_stream(self.ledger, received)

    def _judge_fixed(self, place: FixedLedger, received: list[pa.RecordBatch]) -> Verdicts:
        rows = self._rows(pa.Table.from_batches(received))
        return Ledger.open(place.location).judge(rows, place.generation, 0, parts=place.parts, clock=place.clock)

    def _judge_stream(self, place: StreamLedger, received: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ledger = Ledger.open(place.location)
        ledger.describe_or_check(place.key)
        writer, batch = whereabouts(place.owner, place.follows)
        # Also where there are no rows: the first batch of a restarted query decides what counts of the one before.
        generation = ledger.join(writer, batch)
        if received:
            table = pa.Table.from_batches(received)
            rows = self._rows(table)
            clock = int(table.column(CLOCK)[0].as_py())
            verdicts = ledger.judge(rows, generation, batch, parts=place.parts, clock=clock)
            yield from self._marked(received, verdicts)
            if rows.has_key.any():
                ledger.tidy(generation, batch, part=ledger.part(rows, place.parts), parts=place.parts)

    def _rows(self, table: pa.Table) -> Rows:
        key = _column(table, KEY).cast(pa.binary(DIGEST_BYTES))
        digests = np.frombuffer(key.buffers()[1], ">u8", 2 * len(key), DIGEST_BYTES * key.offset).reshape(-1, 2)
        time = _microseconds(table, self.time)
        window = self._windows(table)
        return Rows(
            digests[:, 0].astype(np.uint64),
            digests[:, 1].astype(np.uint64),
            np.ones(len(key), np.bool_) if key.null_count == 0 else np.asarray(key.is_valid()),
            time,
            window,
            window + self.lateness,
            self._sequences(table),
            _column(table, TIE).to_numpy(zero_copy_only=False),
        )

    def _windows(self, table: pa.Table) -> Numbers:
        if isinstance(self.window, int):
            return np.full(table.num_rows, self.window, np.int64)
        window = _microseconds(table, self.window)
        bad = (window <= 0) | (window > LONGEST)
        if bad.any():
            value = window[np.flatnonzero(bad)[0]]
            raise BadColumn(
                f"The window column '{self.window}' holds {value} microseconds; it must be longer than zero and at "
                f"most {LONGEST}."
            )
        return window

    def _sequences(self, table: pa.Table) -> Numbers:
        if self.sequence is None:
            return np.full(table.num_rows, NO_SEQUENCE, np.int64)
        column = _column(table, self.sequence)
        _refuse_nulls(column, self.sequence)
        return np.asarray(column.cast(pa.int64()))

    def _marked(self, received: list[pa.RecordBatch], verdicts: Verdicts) -> Iterator[pa.RecordBatch]:
        """The rows as they came, with the verdicts beside them."""
        schema = received[0].schema
        is_new = ~verdicts.is_duplicate
        added: dict[str, pa.Array] = {
            IS_DUPLICATE: pa.array(verdicts.is_duplicate),
            ORIGINAL_TIME: pa.array(verdicts.original_time, mask=is_new).cast(schema.field(self.time).type),
        }
        if self.sequence is not None:
            unknown = is_new | (verdicts.original_sequence == NO_SEQUENCE)
            added[ORIGINAL_SEQUENCE] = pa.array(verdicts.original_sequence, mask=unknown)
        kept = [name for name in schema.names if name not in (KEY, TIE, CLOCK)]
        at = 0
        for batch in received:
            columns = [batch.column(name) for name in kept]
            columns += [values.slice(at, batch.num_rows) for values in added.values()]
            yield pa.RecordBatch.from_arrays(columns, names=[*kept, *added])
            at += batch.num_rows


def whereabouts(owner: Owner, follows: int | None) -> tuple[Writer, int]:
    """Who the task that calls writes for, and which batch it is."""
    context = TaskContext.get()
    batch = context.getLocalProperty(_BATCH_ID) if context else None
    query = context.getLocalProperty(_QUERY_ID) if context else None
    run = context.getLocalProperty(_RUN_ID) if context else None
    if batch is None or query is None or run is None:
        raise NotInAQuery(
            "Spark did not tell which batch of which query is being judged. Inside foreachBatch through Spark Connect "
            "it does not: write to a sink directly, or run the query on classic Spark."
        )
    return Writer(run.replace("-", ""), query, owner, follows), int(batch)


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _microseconds(table: pa.Table, name: str) -> Numbers:
    column = _column(table, name)
    _refuse_nulls(column, name)
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"))
    values: npt.NDArray[np.int64] = np.asarray(column.cast(pa.int64()))
    return values


def _refuse_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise BadColumn(
            f"The column '{name}' is null in {column.null_count} of {len(column)} rows of this part; a row without it "
            "cannot be judged. Filter such rows out, or fill the column, before detection."
        )
