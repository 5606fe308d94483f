"""The driver's side of a ledger: which one it is, and who writes it. The tasks only check what is decided here.

Through Spark Connect, this process is not the driver and may be on another machine. What the driver would do is then
done in a task, where the ledger is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from oncebus.errors import OncebusError
from oncebus.ledger import (
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
from oncebus.spark.task import QUERY_ID, Place

_T = TypeVar("_T")

_RAISED: dict[str, type[OncebusError]] = {
    error.__name__: error
    for error in (CheckpointTooOld, CorruptRun, LedgerInUse, LedgerMismatch, LedgerNotShared, StorageError)
}
"""What a task may raise as it looks at a ledger."""


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return not hasattr(spark, "_jsparkSession")


def place_of_query(spark: SparkSession, location: str, key: Sequence[str]) -> Place:
    """The place of one call of `detect_duplicates` on a stream. Makes the ledger if there is none.

    Raises `LedgerInUse` if another query is known to write it, and `LedgerMismatch` if it is for another key.
    """
    owner = _owner(spark)
    # An absolute path, before a process with another working directory sees it.
    location = Ledger.open(location).location
    if is_remote(spark):
        running = frozenset(str(query.id) for query in spark.streams.active)
        identity, follows = _in_task(spark, lambda: _describe(location, key, lambda query: query in running, owner))
    else:
        identity, follows = _describe(location, key, lambda query: _is_running(spark, query), owner)
    return Place(location, identity, uuid.uuid4().hex, owner, follows)


def bind_batch(spark: SparkSession, batch: LedgerBatch, key: Sequence[str]) -> str:
    """The id of the ledger that a batch joins. Makes the ledger if there is none.

    Raises `LedgerNotShared` where this process and the tasks have different folders under the ledger's path, and
    `NotRepeatable` or `LedgerInUse` where a batch that Spark repeats could not be told from another.
    """
    ledger = batch.ledger
    if is_remote(spark):
        location = ledger.location
        identity = ledger.identity = _in_task(spark, lambda: Ledger.open(location).describe_or_check(key))
    else:
        identity = ledger.describe_or_check(key)
    batch.begin(lambda query: _is_running(spark, query), _owner(spark), _run(spark))
    return identity


def _describe(
    location: str, key: Sequence[str], is_running: Callable[[str], bool], owner: Owner
) -> tuple[str, int | None]:
    ledger = Ledger.open(location)
    # First: describing a ledger of an earlier format changes it, which its live writer would not survive.
    follows = ledger.newest_ended(is_running, owner)
    return ledger.describe_or_check(key), follows


def _in_task(spark: SparkSession, work: Callable[[], _T]) -> _T:
    """What a function returns or raises in a task of the cluster. The answer must survive JSON; tuples become lists.

    Not pickled: the server must not be able to run code in its clients.
    """

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                found: dict[str, Any] = {"result": work()}
            except OncebusError as error:
                found = {"error": type(error).__name__, "text": str(error)}
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(found)], pa.string())], names=["answer"])

    [row] = spark.range(0, 1, 1, 1).mapInArrow(answer, "answer string").collect()
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
    """The run of the query that has called `foreachBatch`; None elsewhere, and where this is not the driver."""
    query = None if is_remote(spark) else spark.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        return None
    java: Any = spark._jvm
    found = spark._jsparkSession.sharedState().activeStreamingQueries().get(java.java.util.UUID.fromString(query))
    return None if found is None else str(found.runId())


def _is_running(spark: SparkSession, query: str) -> bool:
    if is_remote(spark):
        return any(str(active.id) == query for active in spark.streams.active)
    # Of all sessions: `streams.active` knows those of one.
    java: Any = spark._jvm
    return bool(
        spark._jsparkSession.sharedState().activeStreamingQueries().containsKey(java.java.util.UUID.fromString(query))
    )
