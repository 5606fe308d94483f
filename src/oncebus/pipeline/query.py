"""Starts the one query of the pipeline, and the Spark session that it runs on."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.engine.folders import Folders
from oncebus.ledger import Owner
from oncebus.pipeline.driver import begin_query
from oncebus.pipeline.jvm import HEAP
from oncebus.pipeline.source import FORMAT, PipelineSource
from oncebus.spark.ports import ClusterOpen, check_protection, is_local, protection
from oncebus.spark.task import LedgerPlace
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
    spark.dataSource.register(PipelineSource)
    after, of_tasks, ledger, identity, follows = begin_query(
        folders, is_local=is_local(spark.sparkContext.master or "")
    )
    shutil.rmtree(folders.checkpoint, ignore_errors=True)
    place = LedgerPlace(ledger.location, identity, uuid.uuid4().hex, Owner.this_process(), follows, has_ended=True)
    writer = (
        # Each task reads, detects, routes and publishes its part inside the source: see `pipeline.batch`.
        spark.readStream.format(FORMAT)
        .options(**asdict(of_tasks), ledger=place.to_json(), after=after, shards=shards, tasks=tasks)
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


def is_tried_once(master: str) -> bool:
    """Return whether Spark runs each task once. On a cluster it may repeat tasks, and so may `local[2,3]`."""
    return re.fullmatch(r"local(\[(\d+|\*)\])?", master) is not None


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
        # On a cluster, its own configuration decides.
        **({"spark.driver.memory": HEAP} if is_local(master) else {}),
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
