"""Makes a ledger remember the rows of a table, as if all of them had been checked."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from oncebus.detection import NO_HORIZON
from oncebus.ledger import Ledger, LedgerBatch
from oncebus.spark.columns import EVER, IS_DUPLICATE, BadColumn, Columns, placement, quote, resolve_columns
from oncebus.spark.operator import detect_duplicates
from oncebus.spark.places import MOST_PARTS, parallelism
from oncebus.values.durations import checked_duration, duration_text, parse_duration, utc_text
from oncebus.values.errors import OncebusError, line_of_task

_LEAST_PARTS = 64
"""A seed has at least so many tasks, because nobody knows how many rows a table has before they are read."""


class BadSeed(OncebusError, ValueError):
    """The ledger cannot remember the rows of the table under this window."""


@dataclass(frozen=True, slots=True)
class Seeded:
    """What a seed did.

    `rows` are those that this call has read. `known` are those of them that repeat another row of the table, or one
    that the ledger knew. `remembered` are the keys that joined the ledger: not those that are over at the
    newest time of their part. An earlier call that was killed has written
    `resumed` of the `parts`. `newest` is the greatest time that was read, in microseconds since 1970.
    """

    rows: int
    remembered: int
    known: int
    without_key: int
    newest: int | None
    parts: int
    resumed: int

    def __str__(self) -> str:
        """Return a line such as `3,000,000 rows: 2,700,000 keys remembered, 300,000 rows known, 0 without a key`."""
        text = (
            f"{self.rows:,} rows: {self.remembered:,} keys remembered, {self.known:,} rows known, "
            f"{self.without_key:,} without a key"
        )
        return f"{text}; {self.resumed} of {self.parts} parts were done before" if self.resumed else text


def seed_ledger(
    ledger: Ledger,
    table: DataFrame,
    *,
    key: str | Column | Sequence[str | Column],
    time: str | Column,
    window: str | timedelta | Column | None,
    sequence: str | Column | None,
    lateness: str | timedelta | None,
    parts: int | None,
    checkpoint: str | os.PathLike[str] | None,
    query: str | None = None,
    **options: Any,
) -> Seeded:
    """Do what `oncebus.spark.Ledger.seed` says.

    `query` names what the table does with its files, for a caller that knows. Then a new process goes on, too.
    """
    if table.isStreaming:
        raise BadSeed(f"Ledger '{ledger.location}' takes a table, not a stream: read it with spark.read.")
    try:
        columns = resolve_columns(table, key, time, window, sequence, adds_verdicts=False)
    except BadColumn as error:
        raise BadColumn(_not_seeded(ledger, error)) from error
    keep = (
        0 if lateness is None else checked_duration(parse_duration(lateness, "lateness"), lateness, "lateness", least=0)
    )
    _refuse_another_window(ledger, columns.window)
    listing = ledger.listing()
    if parts is None:
        least = listing.parts_of_query or parallelism(table.sparkSession)
        # A multiple, so that a task of the stream searches only some of the runs.
        parts = min(least * -(-_LEAST_PARTS // least), MOST_PARTS)
    batch: LedgerBatch
    done: frozenset[int] = frozenset()
    if checkpoint is None:
        arguments = [columns.key_signature, columns.window, keep, sequence is None, parts, sorted(options.items())]
        batch = seed = ledger.seed_batch(_fingerprint(_needed(columns, columns.prepare(table)), arguments, query))
        done = seed.done
    else:
        batch = ledger.batch(checkpoint=checkpoint)
    # The rows of a table that are over for every later row would only take disk.
    batch.drops_over = True
    horizon = listing.horizon()
    left = columns.prepare(table)
    if done:
        left = left.filter(~F.pmod(F.hash(*placement(columns)), F.lit(parts)).isin(*done))
    labels = columns.labels
    with batch:
        checked = detect_duplicates(
            _needed(columns, left),
            key=[labels[name] for name in columns.key],
            time=labels[columns.time],
            window=labels[columns.window] if isinstance(columns.window, str) else window,
            sequence=None if columns.sequence is None else labels[columns.sequence],
            lateness=lateness,
            ledger=batch,
            parts=parts,
            **options,
        )
        try:
            counted = _count(checked, columns)
        except PySparkException as error:
            line = line_of_task(str(error))
            if line is None:
                raise
            raise BadSeed(_not_seeded(ledger, line)) from error
        if not done:
            _refuse_if_over(ledger, horizon, counted.newest, columns, keep)
        remembered = batch.remembered()
        if not (remembered or done) and (counted.newest is None or counted.newest <= horizon):
            # The ledger stays as it is, without runs that hold nothing.
            batch.discard()
    known = counted.rows - counted.new - counted.without_key
    return Seeded(counted.rows, remembered, known, counted.without_key, counted.newest, parts, len(done))


class _Counted(NamedTuple):
    rows: int
    new: int
    without_key: int
    newest: int | None


def _count(checked: DataFrame, columns: Columns) -> _Counted:
    """Evaluate all rows, and count them by verdict. `new` are those with a key."""
    without_key = reduce(or_, (F.col(quote(columns.labels[name])).isNull() for name in columns.key))
    row = checked.agg(
        F.count("*"),
        F.count_if(~F.col(IS_DUPLICATE) & ~without_key),
        F.count_if(without_key),
        F.max(F.unix_micros(F.col(quote(columns.labels[columns.time])).cast("timestamp"))),
    ).first()
    if row is None:
        raise RuntimeError("an aggregate without groups has one row")
    return _Counted(*row)


def _needed(columns: Columns, prepared: DataFrame) -> DataFrame:
    """Return the columns that detection needs, under the names that the caller knows: they are in the ledger."""
    names = [*columns.key, columns.time]
    names += [name for name in (columns.sequence, columns.window) if isinstance(name, str)]
    return prepared.select(*(F.col(name).alias(columns.labels[name]) for name in dict.fromkeys(names)))


def _fingerprint(needed: DataFrame, arguments: Sequence[Any], query: str | None) -> str:
    """Return a text that only a seed of the same rows with the same arguments has.

    Rows that come from no file may be others next time, so their fingerprint never comes again. Without a `query`,
    Spark's hash stands for it. For Parquet and ORC, each JVM has another one.
    """
    files = [_state_of(name) for name in sorted(needed.inputFiles())]
    about = [*arguments, needed.schema.json(), query or needed.semanticHash(), files] if files else [uuid.uuid4().hex]
    return hashlib.sha256(json.dumps(about, default=str).encode()).hexdigest()[:32]


def _state_of(file: str) -> tuple[str, int, int]:
    """Return a file with its size and time, if this process can see it: else the name has to do."""
    address = urlsplit(file)
    try:
        status = os.stat(unquote(address.path)) if address.scheme in ("", "file") else None
    except OSError:
        status = None
    return (file, 0, 0) if status is None else (file, status.st_size, status.st_mtime_ns)


def _refuse_another_window(ledger: Ledger, window: str | int) -> None:
    if isinstance(window, str):
        return
    known = ledger.windows()
    if known and window not in known:
        texts = ", ".join(sorted(map(_duration_text, known)))
        raise BadSeed(
            f"Ledger '{ledger.location}' remembers keys for {texts}, not for {_duration_text(window)}: of two windows "
            "the shorter counts. Give the window of the ledger, or start a new one."
        )


def _refuse_if_over(ledger: Ledger, horizon: int, newest: int | None, columns: Columns, keep: int) -> None:
    if newest is None or isinstance(columns.window, str) or horizon == NO_HORIZON:
        return
    if newest + columns.window + keep <= horizon:
        raise BadSeed(
            f"Ledger '{ledger.location}' has seen times up to {utc_text(horizon)}, and the newest "
            f"'{columns.labels[columns.time]}' of the table is {utc_text(newest)}: with a window of "
            f"{_duration_text(columns.window)}, it would remember no row. Give a longer window or lateness, or a new "
            "ledger."
        )


def _duration_text(window: int) -> str:
    return "ever" if window == EVER else duration_text(window)


def _not_seeded(ledger: Ledger, why: object) -> str:
    return f"Ledger '{ledger.location}' was not seeded: {why}"
