"""Runs the pipeline as a process: one Spark session with one query.

The process ends when the query ends, on a signal, or when the process that started it is gone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxReader
from oncebus.pipeline.jvm import OPTIONS, ClassArchive, Recording, default_cache
from oncebus.pipeline.query import pipeline_session, start_query
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_STOP_TIMEOUT = "2s"


class PipelineFailed(OncebusError):
    """The query ended with an error."""


class PipelineRefused(OncebusError):
    """The pipeline must not run over this data folder."""


def run_pipeline(
    folders: Folders,
    *,
    master: str,
    shards: int,
    parent: int | None = None,
    cache: Path | None = None,
    record: bool = False,
    session: Callable[[str, Sequence[str]], SparkSession] = pipeline_session,
) -> None:
    """Run the query until SIGTERM or SIGINT, or until the process `parent` is gone.

    `session` starts Spark, given a master and the Java options for the driver. The folder `cache` holds an archive of
    classes that lets Java start faster; with `record`, this run writes the archive when it ends.

    Raises `PipelineFailed` if the query fails, and `PipelineRefused` if another pipeline runs or the inbox has a
    different number of shards.
    """
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop_requested.set())
    with _locked(folders):
        archive = ClassArchive(cache or default_cache())
        recording = Recording(archive) if record else None
        spark = session(master, [*OPTIONS, *(recording or archive).options])
        if recording is None and not archive.exists():
            log.info("Spark started without a class archive. To speed up later starts, run once: oncebus warm-up")
        # Replace the handler that Spark has installed: on SIGINT it cancels jobs.
        signal.signal(signal.SIGINT, lambda *_: stop_requested.set())
        try:
            _run(spark, folders, shards, lambda: stop_requested.wait(_POLL_SECONDS) or _is_orphan(parent))
        except PySparkException as error:
            raise PipelineFailed(_one_line(error)) from error
        finally:
            spark.stop()
            if recording is not None:
                recording.close()


def _run(spark: SparkSession, folders: Folders, shards: int, is_over: Callable[[], bool]) -> None:
    # Wait until the gateway has created the inbox. With a different number of shards, some of its shards would never be
    # read.
    while (found := InboxReader(folders.inbox).shards()) is None:
        if is_over():
            return
    if found != shards:
        raise PipelineRefused(f"Inbox '{folders.inbox}' has {found} shards, not {shards}. Set 'shards' to {found}.")
    spark.conf.set("spark.sql.streaming.stopTimeout", _STOP_TIMEOUT)
    query = start_query(spark, folders, shards=shards, tasks=spark.sparkContext.defaultParallelism)
    fields = {"master": spark.sparkContext.master, "query": str(query.id)}
    log.info("The pipeline is running", extra={"fields": fields})
    while query.isActive and not is_over():
        if log.isEnabledFor(logging.DEBUG) and (progress := query.lastProgress) is not None:
            fields = {"batch": progress["batchId"], "parts": progress["numInputRows"], **progress["durationMs"]}
            log.debug("A batch is done", extra={"fields": fields})
    error = query.exception()
    # If the batch does not end in time, the next query runs it again, as after a kill.
    with suppress(Py4JError, PySparkException):
        query.stop()
    if error is not None:
        raise PipelineFailed(_one_line(error))


def _is_orphan(parent: int | None) -> bool:
    if parent is None or os.getppid() == parent:
        return False
    log.warning("Stopping, because the process that started the pipeline has ended")
    return True


@contextmanager
def _locked(folders: Folders) -> Iterator[None]:
    """Lock the data folder against a second pipeline, until this process ends."""
    path = folders.pipeline_lock
    try:
        folders.make()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PipelineRefused(f"Data folder '{folders.data}' cannot be written: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineRefused(f"Another pipeline uses data folder '{folders.data}'. Stop it first.") from error
        yield
    finally:
        os.close(descriptor)


def _one_line(error: PySparkException | StreamingQueryException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Prefer the error that a task raised: it says more than the text that Spark wraps around it.
    own = [line for line in lines if line.startswith("oncebus.")]
    return (own or lines or [type(error).__name__])[-1 if own else 0]
