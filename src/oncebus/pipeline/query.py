"""Starts the one query of the pipeline, and the Spark session that it runs on."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.engine.agreement import check_ledger, check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.outbox import Outbox
from oncebus.ledger import Committed, Ledger, Owner
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.source import FORMAT, PipelineSource
from oncebus.spark.ports import ClusterOpen, check_protection, is_local, protection
from oncebus.spark.task import Place
from oncebus.spark.workers import WorkersDiffer, check_workers
from oncebus.values.errors import OncebusError

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class QueryNotStarted(OncebusError):
    """Spark could not start the query, for example because the disk of its checkpoint is full."""


def start_query(spark: SparkSession, folders: Folders, *, shards: int, tasks: int) -> StreamingQuery:
    """Start the pipeline after the newest complete entry of the outbox. No other query may use these folders.

    Each start is a new query with a new checkpoint: the outbox says how far the last query came.

    Raises `QueryNotStarted` if Spark cannot write the checkpoint.
    """
    check_no_repair(folders)
    spark.dataSource.register(PipelineSource)
    ledger = Ledger.open(folders.ledger)
    identity = ledger.describe_or_check(KEY_SIGNATURE)
    start = resume(folders.outbox, ledger, is_local=is_local(spark.sparkContext.master or ""))
    shutil.rmtree(folders.checkpoint, ignore_errors=True)
    place = Place(ledger.location, identity, uuid.uuid4().hex, Owner.this_process(), start.follows, has_ended=True)
    writer = (
        # Each task reads, detects, routes and publishes its part inside the source: see `pipeline.batch`.
        spark.readStream.format(FORMAT)
        .options(inbox=str(folders.inbox), catalogue=str(folders.catalogue), drafts=start.drafts)
        .options(ledger=place.to_json(), after=start.after, shards=shards, tasks=tasks)
        .options(follows=is_tried_once(spark.sparkContext.master or ""))
        .load()
        # When a task ends, its part of the entry is published. Spark only has to know that the batch is done.
        .writeStream.format("noop")
        .option("checkpointLocation", str(folders.checkpoint / uuid.uuid4().hex))
        # Nobody resumes from the checkpoint, so batches need not wait for it. It would take a quarter of the time of a
        # small one.
        .options(asyncProgressTrackingEnabled=True, asyncProgressTrackingCheckpointIntervalMs=60_000)
        .queryName("oncebus")
    )
    try:
        return writer.start()
    except Py4JJavaError as error:
        # Java's own text names no file: "No space left on device".
        reason = _innermost(error)
        raise QueryNotStarted(f"Spark cannot start a query with checkpoint '{folders.checkpoint}': {reason}") from error


def _innermost(error: Py4JJavaError) -> str:
    """Return the text of the exception in Java that caused all others."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause.getClass().getName())


class Start(NamedTuple):
    """The start of a query.

    The query reads the commits after `after`, writes drafts to the folder `drafts`, and follows the generation
    `follows` of the ledger.
    """

    after: int
    drafts: str
    follows: int


def is_tried_once(master: str) -> bool:
    """Return whether Spark runs each task once. On a cluster it may repeat tasks, and so may `local[2,3]`."""
    return re.fullmatch(r"local(\[(\d+|\*)\])?", master) is not None


def resume(outbox: Path, ledger: Ledger, *, is_local: bool) -> Start:
    """Return where the next query begins. Also records in the ledger that the output is complete up to there.

    Set `is_local` if all tasks of the query run on this machine.

    Raises `DataMismatch` if outbox and ledger come from different times.

    The lock on the data folder proves that the last query has ended. The ledger alone would have to guess, if that
    query ran in another container or before a reboot.
    """
    check_ledger(outbox, ledger)
    last, drafts = Outbox(outbox).begin(is_local=is_local)
    newest = ledger.newest()
    follows = newest.number if newest else 0
    if last is None:
        return Start(0, drafts, follows)
    batch = last.batch()
    # If a later query has joined the ledger but has no entry yet, it has already recorded what is complete.
    if newest is not None and newest.query == batch.query:
        ledger.record_committed(Committed(batch.query, batch.number))
    return Start(last.last, drafts, follows)


def pipeline_session(master: str, java_options: Sequence[str] = (), *, insecure_cluster: bool = False) -> SparkSession:
    """Return a Spark session tuned for small batches, with these options for the Java of its driver.

    In local mode only this process can use Spark's ports. On a cluster the user must protect them: raises `ClusterOpen`
    if they are open, unless `insecure_cluster` is set. Raises `WorkersDiffer` if the workers run a different Python.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.locality.wait": "0",
        # The plan has no shuffle that adaptive execution could improve, and no state that an empty batch could advance.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        **protection(master),
    }
    builder = SparkSession.builder.master(master).appName("oncebus pipeline")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        check_workers(spark)
        if not insecure_cluster:
            check_protection(spark)
    except (WorkersDiffer, ClusterOpen):
        spark.stop()
        raise
    return spark
