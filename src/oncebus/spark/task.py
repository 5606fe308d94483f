"""Runs detection inside a Spark task: takes the Arrow batches of its part, and yields the verdicts.

Spark calls a task in one of two ways. As an Arrow UDF it gets the columns that detection needs, and yields verdicts. As
a function of `mapInArrow` it gets whole rows, and yields them with the verdicts added.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Policy, Rows, Verdicts, is_forgotten, judge, recall_nothing
from oncebus.detection.hashing import digests_of_keys, digests_of_rows
from oncebus.detection.values import Index, Numbers
from oncebus.ledger import LANES, Generation, NotPartitioned, Owner, TaskLedger, Writer
from oncebus.spark.columns import (
    CLOCK,
    EVER,
    EVER_FURTHEST,
    HELPER,
    IS_DUPLICATE,
    LATE,
    ORIGINAL_SEQUENCE,
    ORIGINAL_TIME,
    PART,
    WITHOUT_KEY,
    BadColumn,
)
from oncebus.values.durations import LONGEST
from oncebus.values.errors import OncebusError

# Spark sets these local properties for every job of a query, and offers user code no call that changes them. We do not
# use the job group, although Spark sets it to the run id: user code may call `setJobGroup`.
_BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"


_FURTHEST = 2**62
"""The latest time allowed, in microseconds: adding a window and a lateness to it still fits 64 bits."""


class NotInAQuery(OncebusError):
    """Spark runs a streaming plan in a task without a batch number, so the ledger could not recognise a repeat."""


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The ledger that the tasks of a query write to, and the writer id they use. The driver makes it.

    `identity` identifies the ledger. `parts` is the number of parts of each batch of `detect_duplicates`. The other
    fields describe the writer: see `oncebus.ledger.Writer`. The tasks get their batch number from Spark.
    """

    location: str
    identity: str
    token: str
    owner: Owner
    follows: int
    has_ended: bool
    parts: int | None = None

    def open(self) -> TaskLedger:
        """Open the ledger in a task.

        Using it raises `LedgerNotShared` if the driver sees a different ledger at its location.
        """
        return TaskLedger.at(self.location, self.identity)

    def to_json(self) -> str:
        """Return the object as JSON, because the options of a Spark data source are text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LedgerPlace:
        """Parse the result of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "owner": Owner(**fields["owner"])})

    def writer(self) -> tuple[Writer, int]:
        """Return the writer and the batch number of the calling task. Raises `NotInAQuery` outside a query."""
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        query = context.getLocalProperty(QUERY_ID) if context else None
        if batch is None or query is None:
            raise NotInAQuery(
                "Spark gave this task no batch number. In foreachBatch, start threads with pyspark.InheritableThread "
                "or wrap their functions in pyspark.inheritable_thread_target; with Spark Connect, detect inside "
                "foreachBatch with Ledger.open(…).batch(query=…, batch=…)."
            )
        parts = None if self.parts == LANES else self.parts
        return Writer(self.token, query, self.owner, self.follows, self.has_ended, parts), int(batch)


@dataclass(frozen=True, slots=True)
class FixedLedger:
    """The ledger for the tasks of a batch, whose generation and number the driver has chosen."""

    location: str
    identity: str
    generation: Generation
    number: int
    clock: int
    parts: int
    drops_over: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that a task needs to know. The driver makes it once.

    `window` is a column name or microseconds. `labels` has what the caller calls each column, by its name here. If it
    `reports`, the verdicts say too which rows are late, and which have no key. `arguments` are the columns that the
    task gets as an Arrow UDF, in order. `told_apart` are the columns that tell rows apart that have the same key, time
    and sequence: if None, all columns that are no helpers.
    """

    key: tuple[str, ...]
    time: str
    window: str | int
    lateness: int
    sequence: str | None
    ledger: LedgerPlace | FixedLedger | None
    labels: dict[str, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    refuses_null_keys: bool = False
    reports: bool = False
    arguments: tuple[str, ...] = ()
    told_apart: tuple[str, ...] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Judge one part of a batch, and yield its rows with the verdicts, without helper columns. For `mapInArrow`.

        Yields nothing before the accepted keys are published: if the task fails later and runs again, it must find
        them.
        """
        received = [batch for batch in batches if batch.num_rows]
        verdicts = self._judge(received)
        for batch in received:
            kept = [name for name in batch.schema.names if not name.startswith(HELPER)]
            added = next(verdicts)
            columns = [*(batch.column(name) for name in kept), *added.flatten()]
            # Spark goes by the position, and the caller's own names may repeat, which Arrow's Java library cannot read.
            yield pa.RecordBatch.from_arrays(columns, names=[*kept, *(each.name for each in added.type)])
        # Tidy.
        for _ in verdicts:
            raise AssertionError("There are more verdicts than batches.")

    def verdicts(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Judge one part of a batch, and yield a struct of verdicts for each row, in order. For an Arrow UDF.

        `batches` have the columns `arguments`. Reads all of them first, and yields nothing before the accepted keys
        are published: see `__call__`.
        """
        yield from self._judge([pa.RecordBatch.from_arrays(list(each), names=self.arguments) for each in batches])

    def _judge(self, received: list[pa.RecordBatch]) -> Iterator[pa.Array]:
        """Yield the verdicts on each batch. Then tidy the ledger."""
        if isinstance(self.ledger, LedgerPlace):
            yield from self._judge_stream(self.ledger, received)
        elif not received:
            return
        elif self.ledger is None:
            # Nothing keeps these digests, so any secret will do.
            rows = self._rows(pa.Table.from_batches(received), secrets.token_bytes(32))
            yield from self._verdicts(received, rows, judge(rows, recall_nothing, NO_HORIZON, self.policy))
        else:
            yield from self._judge_fixed(self.ledger, received)

    def _judge_fixed(self, place: FixedLedger, received: list[pa.RecordBatch]) -> Iterator[pa.Array]:
        ledger = TaskLedger.at(place.location, place.identity)
        generation, number, parts = place.generation, place.number, place.parts
        table = pa.Table.from_batches(received)
        # On an object store, a listing costs as much as a put.
        listing = ledger.listing()
        rows, part = self._rows(table, ledger.secret(listing)), _part(table)
        verdicts = ledger.judge(
            rows,
            generation,
            number,
            part=part,
            parts=parts,
            clock=place.clock,
            policy=self.policy,
            listing=listing,
            drops_over=place.drops_over,
        )
        yield from self._verdicts(received, rows, verdicts)
        # A batch outside a query tidies the ledger when it joins.
        if generation.is_in_query and rows.has_key.any():
            ledger.tidy(generation, number, part=part, parts=parts)

    def _judge_stream(self, place: LedgerPlace, received: list[pa.RecordBatch]) -> Iterator[pa.Array]:
        ledger, parts = place.open(), place.parts or 1
        writer, batch = place.writer()
        # Join even without rows: the first batch of a restarted query decides which batches of the last one count.
        generation, listing = ledger.enter(writer, batch)
        if received:
            table = pa.Table.from_batches(received)
            rows, part = self._rows(table, ledger.secret(listing)), _part(table)
            cut = int(table.column(CLOCK)[0].as_py())
            verdicts = ledger.judge(
                rows, generation, batch, part=part, parts=parts, clock=cut, cut=cut, policy=self.policy, listing=listing
            )
            yield from self._verdicts(received, rows, verdicts)
            if rows.has_key.any():
                ledger.tidy(generation, batch, part=part, parts=parts)

    def _rows(self, table: pa.Table, secret: bytes) -> Rows:
        keys = [_column(table, name) for name in self.key]
        if self.refuses_null_keys:
            for name, column in zip(self.key, keys, strict=True):
                _refuse_nulls(column, self._label(name))
        high, low, has_key = digests_of_keys(keys, secret)
        window = self._windows(table)
        own = [name for name in table.column_names if not name.startswith(HELPER)]
        told_apart = table.select(own if self.told_apart is None else list(self.told_apart))
        return Rows(
            high,
            low,
            has_key,
            self._times(table),
            window,
            window + self.lateness,
            self._sequences(table),
            lambda chosen: _ties(told_apart, chosen),
            has_sequence=self.sequence is not None,
        )

    def _times(self, table: pa.Table) -> Numbers:
        time = self._microseconds(table, self.time)
        furthest, years = (EVER_FURTHEST, "36,000") if self.window == EVER else (_FURTHEST, "146,000")
        bad = (time < -furthest) | (time > furthest)
        if bad.any():
            raise BadColumn(
                f"The time column '{self._label(self.time)}' holds {time[np.flatnonzero(bad)[0]]} microseconds since "
                f"1970; it must be within {years} years of 1970. Filter such rows out before detection."
            )
        return time

    def _windows(self, table: pa.Table) -> Numbers:
        if isinstance(self.window, int):
            return np.full(table.num_rows, self.window, np.int64)
        window = self._microseconds(table, self.window)
        bad = (window <= 0) | (window > LONGEST)
        if bad.any():
            value = window[np.flatnonzero(bad)[0]]
            raise BadColumn(
                f"The window column '{self._label(self.window)}' holds {value} microseconds; it must be longer than "
                f"zero and at most {LONGEST}."
            )
        return window

    def _sequences(self, table: pa.Table) -> Numbers:
        if self.sequence is None:
            return np.full(table.num_rows, NO_SEQUENCE, np.int64)
        column = _column(table, self.sequence)
        _refuse_nulls(column, self._label(self.sequence))
        return np.asarray(column.cast(pa.int64()))

    def _microseconds(self, table: pa.Table, name: str) -> Numbers:
        column = _column(table, name)
        _refuse_nulls(column, self._label(name))
        if pa.types.is_duration(column.type):
            column = column.cast(pa.duration("us"))
        values: npt.NDArray[np.int64] = np.asarray(column.cast(pa.int64()))
        return values

    def _label(self, name: str) -> str:
        return self.labels.get(name, name)

    def _verdicts(self, received: list[pa.RecordBatch], rows: Rows, verdicts: Verdicts) -> Iterator[pa.Array]:
        """Yield the verdicts on each batch as structs: a field for each column to add."""
        is_new = ~verdicts.is_duplicate
        added: dict[str, pa.Array] = {
            IS_DUPLICATE: pa.array(verdicts.is_duplicate),
            ORIGINAL_TIME: pa.array(verdicts.original_time, mask=is_new).cast(received[0].schema.field(self.time).type),
        }
        if self.sequence is not None:
            unknown = is_new | ~verdicts.has_original_sequence
            added[ORIGINAL_SEQUENCE] = pa.array(verdicts.original_sequence, mask=unknown)
        if self.reports:
            added[LATE] = pa.array(is_forgotten(rows.time, rows.keep, verdicts.horizon))
            added[WITHOUT_KEY] = pa.array(~rows.has_key)
        structs = pa.StructArray.from_arrays(list(added.values()), names=list(added))
        at = 0
        for batch in received:
            yield structs.slice(at, batch.num_rows)
            at += batch.num_rows


def _part(table: pa.Table) -> int:
    """Return the part, or the partition of the input, that all rows belong to.

    It comes with the rows: the number of the task is another one where a task computes several partitions, as behind
    `coalesce`. Raises `OncebusError` if the rows belong to two parts, because the task searches the runs of one part
    only.
    """
    parts = np.asarray(_column(table, PART))
    if parts.min() != parts.max():
        raise OncebusError(
            f"A task has rows of parts {parts.min()} and {parts.max()}. This is a bug in Oncebus: please report it."
        )
    part = int(parts[0])
    if part >= LANES:
        raise NotPartitioned(
            f"The input has more than {LANES} partitions. Call detect_duplicates without partitioned=True."
        )
    return part


def _ties(told_apart: pa.Table, chosen: Index) -> Numbers:
    """Return a number for each of the chosen rows. Without columns to tell them apart, all rows are the same."""
    if told_apart.num_columns == 0:
        return np.zeros(len(chosen), np.int64)
    return digests_of_rows(told_apart.take(pa.array(chosen)))


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _refuse_nulls(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise BadColumn(
            f"The column '{name}' is null in {column.null_count} of {len(column)} rows of this part, and detection "
            "needs a value. Filter such rows out, or fill the column, before detection."
        )
