"""Defines `detect_duplicates`: exact duplicate detection as one function on a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame, Observation, SparkSession

from oncebus.detection import Policy
from oncebus.ledger import LANES, Ledger, LedgerBatch
from oncebus.spark.columns import Columns, resolve_columns
from oncebus.spark.metrics import observe_counts
from oncebus.spark.places import MOST_PARTS, bind_batch, is_remote, place_of_query
from oncebus.spark.plan import add_verdicts
from oncebus.spark.task import FixedLedger, LedgerPlace, Task
from oncebus.spark.workers import check_workers
from oncebus.values.durations import checked_duration, parse_duration
from oncebus.values.errors import OncebusError


class BadCall(OncebusError, ValueError):
    """The arguments of a call contradict each other."""


def detect_duplicates(
    messages: DataFrame,
    *,
    key: str | Column | Sequence[str | Column],
    time: str | Column,
    window: str | timedelta | Column | None,
    ledger: str | os.PathLike[str] | LedgerBatch | None = None,
    sequence: str | Column | None = None,
    lateness: str | timedelta | None = None,
    keep: Literal["first", "last"] = "first",
    window_from: Literal["first", "last"] = "first",
    parts: int | None = None,
    partitioned: bool = False,
    null_key: Literal["new", "error"] = "new",
    observe: str | Observation | None = None,
) -> DataFrame:
    """Mark the duplicates in a DataFrame.

    Returns the same rows with the columns `is_duplicate`, `original_time` and, if `sequence` is given,
    `original_sequence`. A row is a duplicate if a row with the same key was accepted less than one window away. Rows
    are checked in the order of `time`, batch after batch. A duplicate does not extend the window, and exactly one
    window later a row is new.

    Every evaluated row counts as output: a stream remembers the keys of a batch when the batch is evaluated, and a
    batch that Spark repeats gets the same verdicts again.

    Args:
        messages: A batch or streaming DataFrame.
        key: One or more columns: names, fields of structs like `"header.id"`, or expressions like
            `F.sha2("body", 256)`. A row with a null in one of them is never a duplicate. `null_key` may
            refuse it.
        time: A timestamp column, or an expression. A null in it is an error.
        window: `"10 minutes"`, `"PT10M"`, a timedelta, or a column or expression with an interval or microseconds. None
            or `"ever"` means that keys are never forgotten. If a key was accepted under one window and is checked under
            another, the shorter counts.
        ledger: Where to remember accepted keys. A stream needs a path or URI. A batch takes the value of
            `with Ledger.open(path).batch() as ledger`, or None to check the DataFrame on its own. All machines of the
            cluster must share the folder.
        sequence: A whole-number column that breaks ties in time (the lower number comes first) and names the original.
        lateness: How much longer than its window to remember a key, for rows that arrive out of order.
        keep: Which of repeated rows is new: the `"first"`, or in a batch DataFrame the `"last"`. Rows of earlier
            batches were output already, so a row that repeats one of them is a duplicate in either case.
        window_from: `"last"` lets every duplicate extend the window: a row is new if its key was not seen at all for
            one window. Then the ledger remembers every row, and the original of a duplicate may be a duplicate.
        parts: The number of tasks for a batch. The default is the cluster's parallelism with a ledger, and Spark's
            shuffle partitions without one. A query keeps the number in its ledger, so that a batch is spread the same
            way if it is repeated on a cluster of another size. A Python worker holds a whole part in memory.
        partitioned: Whether all rows of a key are in one partition of each batch already, as in a Kafka topic that is
            keyed by the id. Then nothing is shuffled. This needs a ledger, and is checked: a key in two partitions is
            an error.
        null_key: What a row with a null in its key is: `"new"`, whatever came before it, or an `"error"`.
        observe: A name under which Spark reports the counts `rows`, `new`, `duplicates`, `late` and `without_key`, in
            the progress of a streaming query (`observedMetrics`); or an `Observation` for a batch. `DetectionMetrics`
            exports them.

    Raises:
        BadCall: The arguments contradict each other.
        BadColumn: A column is missing or has the wrong type.
    """
    spark = messages.sparkSession
    is_case_sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    columns = resolve_columns(messages, key, time, window, sequence, is_case_sensitive=is_case_sensitive)
    extra = (
        0 if lateness is None else checked_duration(parse_duration(lateness, "lateness"), lateness, "lateness", least=0)
    )
    if parts is not None and not 1 <= parts <= MOST_PARTS:
        raise BadCall(f"The number of parts is {parts!r}; it must be from 1 to {MOST_PARTS}.")
    if partitioned and (parts is not None or ledger is None):
        raise BadCall("partitioned=True needs a ledger, which checks it, and no number of parts.")
    if not is_remote(spark):
        check_workers(spark)
    tasks = LANES if partitioned else parts
    policy = _policy(keep, window_from, is_streaming=messages.isStreaming)
    place: LedgerPlace | FixedLedger | None
    if messages.isStreaming:
        if ledger is None or isinstance(ledger, Ledger | LedgerBatch):
            raise BadCall("A streaming DataFrame needs a ledger: give the path or URI of a folder.")
        place = place_of_query(spark, os.fspath(ledger), columns.key_signature, tasks)
    elif ledger is None:
        place = None
    elif isinstance(ledger, LedgerBatch):
        place = _fixed_ledger(spark, ledger, columns, tasks)
    else:
        location = ledger.location if isinstance(ledger, Ledger) else os.fspath(ledger)
        raise BadCall(
            "A batch DataFrame takes an open ledger batch, not a path. Write: with "
            f"Ledger.open({location!r}).batch() as ledger: detect_duplicates(…, ledger=ledger)"
        )
    # Spark Connect has an `Observation` of its own.
    if observe is not None and not (isinstance(observe, str) and observe) and type(observe).__name__ != "Observation":
        raise BadCall(f"observe is {observe!r}; it must be a name or an Observation.")
    if null_key not in ("new", "error"):
        raise BadCall(f"null_key is {null_key!r}; it must be 'new' or 'error'.")
    task = Task(
        columns.key,
        columns.time,
        columns.window,
        extra,
        columns.sequence,
        place,
        columns.labels,
        policy,
        refuses_null_keys=null_key == "error",
        reports=observe is not None,
    )
    checked = add_verdicts(messages, columns, task, place.parts if place else parts)
    return checked if observe is None else observe_counts(checked, observe)


def _policy(keep: str, window_from: str, *, is_streaming: bool) -> Policy:
    for name, value in (("keep", keep), ("window_from", window_from)):
        if value not in ("first", "last"):
            raise BadCall(f"{name} is {value!r}; it must be 'first' or 'last'.")
    if keep == "last" and is_streaming:
        raise BadCall(
            "keep='last' needs a batch DataFrame. A stream outputs the first row of a key before the last one arrives, "
            "and cannot take it back."
        )
    return Policy(keeps_last=keep == "last", extends=window_from == "last")


def _fixed_ledger(spark: SparkSession, batch: LedgerBatch, columns: Columns, parts: int | None) -> FixedLedger:
    if batch.is_used:
        raise BadCall("This ledger batch has already checked a DataFrame. Open a new batch for each DataFrame.")
    identity, parts = bind_batch(spark, batch, columns.key_signature, parts)
    return FixedLedger(
        batch.ledger.location, identity, batch.generation, batch.number, batch.clock, parts, batch.drops_over
    )
