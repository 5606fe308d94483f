"""The one query of the pipeline, and the Spark that it runs on."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.agreement import check_ledger, check_no_repair
from oncebus.folders import Folders
from oncebus.ledger import Committed, Ledger, Owner
from oncebus.outbox import Outbox
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.source import FORMAT, PipelineSource
from oncebus.spark.ports import ClusterOpen, check_protection, is_local, protection
from oncebus.spark.task import Place
from oncebus.spark.workers import WorkersDiffer, check_workers

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start_query(spark: SparkSession, folders: Folders, *, shards: int, tasks: int) -> StreamingQuery:
    """Start the pipeline behind the newest complete entry of the outbox. No other may run over these folders.

    Each start is a new query with a checkpoint of its own: it is the outbox that says how far the last one came.
    """
    check_no_repair(folders)
    spark.dataSource.register(PipelineSource)
    ledger = Ledger.open(folders.ledger)
    identity = ledger.describe_or_check(KEY_SIGNATURE)
    start = resume(folders.outbox, ledger, is_local=is_local(spark.sparkContext.master or ""))
    shutil.rmtree(folders.checkpoint, ignore_errors=True)
    place = Place(ledger.location, identity, uuid.uuid4().hex, Owner.this_process(), start.follows)
    return (
        # Each task reads, detects, routes and publishes its part inside the source: see `pipeline.batch`.
        spark.readStream.format(FORMAT)
        .options(inbox=str(folders.inbox), catalogue=str(folders.catalogue), drafts=start.drafts)
        .options(ledger=place.to_json(), after=start.after, shards=shards, tasks=tasks)
        .load()
        # Each task has published its part of the entry when it ends; Spark only has to know that the batch is done.
        .writeStream.format("noop")
        .option("checkpointLocation", str(folders.checkpoint / uuid.uuid4().hex))
        # Nobody resumes from it, so no batch has to wait for it: a quarter of the time of a small one.
        .options(asyncProgressTrackingEnabled=True, asyncProgressTrackingCheckpointIntervalMs=60_000)
        .queryName("oncebus")
        .start()
    )


class Start(NamedTuple):
    """The commit behind which a query begins, the folder for its drafts, the generation of the ledger it succeeds."""

    after: int
    drafts: str
    follows: int | None


def resume(outbox: Path, ledger: Ledger, *, is_local: bool) -> Start:
    """Where a query begins. The ledger is told that the last query's output is complete up to there.

    `is_local` tells that all tasks of the query run on this machine.

    Raises `DataMismatch` where outbox and ledger are not of the same time.

    The last query is known to have ended, by the lock on the data folder: a ledger would have to guess, wherever its
    process ran in another container or before the machine was started anew.
    """
    check_ledger(outbox, ledger)
    last, drafts = Outbox(outbox).begin(is_local=is_local)
    newest = ledger.newest()
    follows = newest.number if newest else None
    if last is None:
        return Start(0, drafts, follows)
    batch = last.batch()
    # Of a query that came later there is no entry yet; it has told the ledger already what is complete.
    if newest is not None and newest.query == batch.query:
        ledger.record_committed(Committed(batch.query, batch.number))
    return Start(last.last, drafts, follows)


def pipeline_session(master: str, java_options: Sequence[str] = (), *, insecure_cluster: bool = False) -> SparkSession:
    """A session tuned for small batches, its driver's Java started with the options.

    In local mode only this process can use its ports. On a cluster that is the user's to configure: raises
    `ClusterOpen` where it is not, unless with `insecure_cluster`. Raises `WorkersDiffer`.
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
