"""What a Spark task does with its part of a batch: Arrow in, verdicts from `oncebus.detection`, Arrow out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

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

# Spark sets these for every job of a query, and user code has no call that changes them. The job group, which Spark
# sets to the id of the run, is not among them: `setJobGroup` is for everyone.
_BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"


_FURTHEST = 2**62
"""A time plus or minus any window and lateness still fits 64 bits."""


class NotInAQuery(OncebusError):
    """A streaming plan is evaluated where Spark does not tell which batch it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which ledger the tasks of a query write, and for whom. Made by the driver.

    `identity` is the ledger's, `token` the writer's own: see `oncebus.ledger.writers`.
    """

    location: str
    identity: str
    token: str
    owner: Owner
    follows: int | None

    def open(self) -> Ledger:
        """The ledger, for a task. Its use raises `LedgerNotShared` if it is not the driver's."""
        return Ledger.open(self.location, identity=self.identity)

    def to_json(self) -> str:
        """As text, for those that only take text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Place:
        """Read back what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "owner": Owner(**fields["owner"])})

    def writer(self) -> tuple[Writer, int]:
        """For whom the task that calls writes, and in which batch. Raises `NotInAQuery`."""
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        query = context.getLocalProperty(QUERY_ID) if context else None
        if batch is None or query is None:
            raise NotInAQuery(
                "Spark did not tell this task its batch. In foreachBatch, start threads with pyspark.InheritableThread "
                "or wrap their functions in pyspark.inheritable_thread_target; through Spark Connect, detect inside "
                "foreachBatch with Ledger.open(…).batch(query=…, batch=…)."
            )
        return Writer(self.token, query, self.owner, self.follows), int(batch)


@dataclass(frozen=True, slots=True)
class StreamLedger:
    """How the tasks of a streaming query find their place in the ledger."""

    place: Place
    parts: int


@dataclass(frozen=True, slots=True)
class FixedLedger:
    """How the tasks of a batch do."""

    location: str
    identity: str
    generation: Generation
    number: int
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
                yield from self._judge_fixed(self.ledger, received)
        else:
            yield from self._judge_stream(self.ledger, received)

    def _judge_fixed(self, place: FixedLedger, received: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = self._rows(pa.Table.from_batches(received))
        ledger = Ledger.open(place.location, identity=place.identity)
        generation, number = place.generation, place.number
        verdicts = ledger.judge(rows, generation, number, parts=place.parts, clock=place.clock)
        yield from self._marked(received, verdicts)
        # A batch by itself is tidied when it joins.
        if generation.is_in_query and rows.has_key.any():
            ledger.tidy(generation, number, part=ledger.part(rows, place.parts), parts=place.parts)

    def _judge_stream(self, stream: StreamLedger, received: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ledger, parts = stream.place.open(), stream.parts
        writer, batch = stream.place.writer()
        # Also where there are no rows: the first batch of a restarted query decides what counts of the one before.
        generation = ledger.join(writer, batch)
        if received:
            table = pa.Table.from_batches(received)
            rows = self._rows(table)
            cut = int(table.column(CLOCK)[0].as_py())
            verdicts = ledger.judge(rows, generation, batch, parts=parts, clock=cut, cut=cut)
            yield from self._marked(received, verdicts)
            if rows.has_key.any():
                ledger.tidy(generation, batch, part=ledger.part(rows, parts), parts=parts)

    def _rows(self, table: pa.Table) -> Rows:
        key = _column(table, KEY).cast(pa.binary(DIGEST_BYTES))
        digests = np.frombuffer(key.buffers()[1], ">u8", 2 * len(key), DIGEST_BYTES * key.offset).reshape(-1, 2)
        time = self._times(table)
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

    def _times(self, table: pa.Table) -> Numbers:
        time = _microseconds(table, self.time)
        bad = (time < -_FURTHEST) | (time > _FURTHEST)
        if bad.any():
            raise BadColumn(
                f"The time column '{self.time}' holds {time[np.flatnonzero(bad)[0]]} microseconds since 1970; it must "
                "be less than 146,000 years from there. Filter such rows out before detection."
            )
        return time

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
