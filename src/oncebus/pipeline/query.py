"""The one query of the pipeline, and the Spark that it runs on."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.folders import Folders
from oncebus.ledger import Ledger, Owner
from oncebus.pipeline.detect import KEY_SIGNATURE, Detect
from oncebus.pipeline.route import Route
from oncebus.pipeline.source import FORMAT, SCHEMA, InboxSource

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start_query(spark: SparkSession, folders: Folders, *, after: int, shards: int, tasks: int) -> StreamingQuery:
    """Start the pipeline. `after` is the commit behind which it begins where there is no checkpoint yet."""
    spark.dataSource.register(InboxSource)
    ledger = Ledger.open(folders.ledger)
    ledger.describe_or_check(KEY_SIGNATURE)
    owner = Owner.this_process()
    follows = ledger.newest_ended(lambda _: False, owner)
    detect = Detect(ledger.location, owner, follows)
    route = Route(str(folders.catalogue), str(folders.outbox))
    return (
        spark.readStream.format(FORMAT)
        .options(folder=str(folders.inbox), after=after, shards=shards, tasks=tasks)
        .load()
        # One stage: each crossing between Spark and Python takes some 25 ms of every batch.
        .mapInArrow(lambda rows: route(detect(rows)), SCHEMA)
        # Each task has published its part of the entry when it ends; Spark only has to know that the batch is done.
        .writeStream.format("noop")
        .option("checkpointLocation", str(folders.checkpoint))
        .queryName("oncebus")
        .start()
    )


def pipeline_session(master: str) -> SparkSession:
    """A session tuned for small batches. In local mode nothing of it is reachable from outside."""
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
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName("oncebus pipeline")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
