"""The one query of the pipeline, and the Spark that it runs on."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.folders import Folders
from oncebus.ledger import Ledger, Owner
from oncebus.outbox import Outbox
from oncebus.pipeline.detect import KEY_SIGNATURE, Detect
from oncebus.pipeline.route import Route
from oncebus.pipeline.source import FORMAT, SCHEMA, InboxSource

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start_query(spark: SparkSession, folders: Folders, *, shards: int, tasks: int) -> StreamingQuery:
    """Start the pipeline behind the newest complete entry of the outbox. No other may run over these folders.

    Each start is a new query with a checkpoint of its own: it is the outbox that says how far the last one came.
    """
    spark.dataSource.register(InboxSource)
    ledger = Ledger.open(folders.ledger)
    ledger.describe_or_check(KEY_SIGNATURE)
    after, drafts = resume(folders.outbox, ledger)
    shutil.rmtree(folders.checkpoint, ignore_errors=True)
    owner = Owner.this_process()
    follows = ledger.newest_ended(lambda _: False, owner)
    detect = Detect(ledger.location, owner, follows)
    route = Route(str(folders.catalogue), drafts)
    return (
        spark.readStream.format(FORMAT)
        .options(folder=str(folders.inbox), after=after, shards=shards, tasks=tasks)
        .load()
        # One stage: each crossing between Spark and Python takes some 25 ms of every batch.
        .mapInArrow(lambda rows: route(detect(rows)), SCHEMA)
        # Each task has published its part of the entry when it ends; Spark only has to know that the batch is done.
        .writeStream.format("noop")
        .option("checkpointLocation", str(folders.checkpoint / uuid.uuid4().hex))
        # Nobody resumes from it, so no batch has to wait for it: a quarter of the time of a small one.
        .options(asyncProgressTrackingEnabled=True, asyncProgressTrackingCheckpointIntervalMs=60_000)
        .queryName("oncebus")
        .start()
    )


def resume(outbox: Path, ledger: Ledger) -> tuple[int, str]:
    """The commit behind which a query begins, and the folder for its drafts.

    The ledger is told that the last query's output is complete up to there.
    """
    last, drafts = Outbox(outbox).begin()
    if last is None:
        return 0, drafts
    batch = last.batch()
    # Of a query that came later there is no entry yet; it has told the ledger already what is complete.
    if ledger.newest_query() == batch.query:
        ledger.confirm(batch.query, batch.number)
    return last.last, drafts


def pipeline_session(master: str, java_options: Sequence[str] = ()) -> SparkSession:
    """A session tuned for small batches, its driver's Java started with the options. In local mode nothing of it is
    reachable from outside.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.locality.wait": "0",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.driver.extraJavaOptions": " ".join(java_options),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName("oncebus pipeline")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
