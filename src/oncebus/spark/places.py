"""Decides, on the driver, which ledger the tasks of a query write to and under which writer id.

The tasks only verify it.

With Spark Connect this process is not the driver, and may not even see the ledger's folder. The work that needs the
ledger then runs in a task on the cluster.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.ledger import (
    LANES,
    CheckpointTooOld,
    CorruptRun,
    Ledger,
    LedgerBatch,
    LedgerInUse,
    LedgerMismatch,
    LedgerNotShared,
    Owner,
    StorageError,
)
from oncebus.spark.borrowed import find_java_session, find_query
from oncebus.spark.task import QUERY_ID, LedgerPlace
from oncebus.spark.workers import in_worker
from oncebus.values.errors import OncebusError

MOST_PARTS = 256

_T = TypeVar("_T")

_RAISED: dict[str, type[OncebusError]] = {
    error.__name__: error
    for error in (CheckpointTooOld, CorruptRun, LedgerInUse, LedgerMismatch, LedgerNotShared, StorageError)
}
"""The errors that a task may report back, by class name."""


def is_remote(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect."""
    return find_java_session(spark) is None


def place_of_query(spark: SparkSession, location: str, key: Sequence[str], parts: int | None) -> LedgerPlace:
    """Return the ledger and the writer for one call of `detect_duplicates` on a stream.

    Creates the ledger if there is none. Without a number of `parts`, the query keeps that of the ledger's last query.

    Raises `LedgerInUse` if another query is known to write to it, and `LedgerMismatch` if its key columns differ.
    """
    owner = _owner(spark)
    # Make the path absolute: the tasks have a different working directory.
    location = Ledger.open(location).location
    if is_remote(spark):
        running = frozenset(str(query.id) for query in spark.streams.active)
        found = _in_task(spark, lambda: _describe(location, key, lambda query: query in running, owner))
    else:
        found = _describe(location, key, lambda query: is_running(spark, query), owner)
    identity, follows, has_ended, kept = found
    return LedgerPlace(
        location, identity, uuid.uuid4().hex, owner, follows, has_ended, parts or kept or parallelism(spark)
    )


def bind_batch(spark: SparkSession, batch: LedgerBatch, key: Sequence[str], parts: int | None) -> tuple[str, int]:
    """Begin a batch. Return the identity of its ledger, and its number of parts. Creates the ledger if there is none.

    Raises `LedgerNotShared` if the tasks see a different folder at the ledger's path than this process does, and
    `NotRepeatable` or `LedgerInUse` if a batch that Spark repeats could not be recognised as the same batch.
    """
    ledger = batch.ledger
    if is_remote(spark):
        location = ledger.location
        identity = ledger.identity = _in_task(
            spark, lambda: Ledger.open(location).describe_or_check(key, has_secret=True)
        )
    else:
        identity = ledger.describe_or_check(key, has_secret=True)
    # A batch outside a query is never repeated in part, so it may use the whole cluster.
    kept = batch.generation.parts if batch.generation.is_in_query else None
    parts = parts or kept or parallelism(spark)
    batch.parts = None if parts == LANES else parts
    batch.begin(lambda query: is_running(spark, query), _owner(spark), _run(spark))
    return identity, parts


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks the cluster runs at once, at most 256."""
    if not is_remote(spark):
        return min(spark.sparkContext.defaultParallelism, MOST_PARTS)
    # Spark Connect does not tell; but Spark splits a range into as many partitions.
    split = spark.range(1 << 16).select(F.spark_partition_id().alias("part")).distinct().count()
    return min(split, MOST_PARTS)


def _describe(
    location: str, key: Sequence[str], is_running: Callable[[str], bool], owner: Owner
) -> tuple[str, int, bool, int | None]:
    ledger = Ledger.open(location)
    # Do this first. Describing a ledger of an earlier format rewrites it, and a writer that still runs would fail.
    follows, has_ended = ledger.predecessor(is_running, owner)
    return ledger.describe_or_check(key, has_secret=True), follows, has_ended, ledger.listing().parts_of_query


def _in_task(spark: SparkSession, work: Callable[[], _T]) -> _T:
    """Call a function in a task on the cluster. Return its result, or raise its error.

    The result travels as JSON, so tuples become lists. It is not pickled, because unpickling would let the server run
    code in its clients.
    """

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                found: dict[str, Any] = {"result": work()}
            except OncebusError as error:
                found = {"error": type(error).__name__, "text": str(error)}
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(found)], pa.string())], names=["answer"])

    [row] = spark.range(0, 1, 1, 1).mapInArrow(in_worker(answer), "answer string").collect()
    found = json.loads(row["answer"])
    if "error" in found:
        raise _RAISED.get(found["error"], OncebusError)(found["text"])
    answered: _T = found["result"]
    return answered


def _owner(spark: SparkSession) -> Owner:
    if is_remote(spark):
        session: Any = spark
        return Owner.remote_session(session.session_id)
    return Owner.this_process()


def _run(spark: SparkSession) -> str | None:
    """Return the run id of the query that calls `foreachBatch`. None outside `foreachBatch`, and with Spark Connect."""
    query = None if is_remote(spark) else spark.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        return None
    found = find_query(spark, query)
    return None if found is None else str(found.runId())


def is_running(spark: SparkSession, query: str) -> bool:
    """Return whether a streaming query of this Spark application, or of this Connect session, is running."""
    if is_remote(spark):
        return any(str(active.id) == query for active in spark.streams.active)
    # The ledger may belong to a query of any session.
    return find_query(spark, query) is not None
