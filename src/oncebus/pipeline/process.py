"""The pipeline as a process: Spark, the query, and an end when either ends or nobody needs it any more."""

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
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession

from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.inbox import InboxReader
from oncebus.pipeline.jvm import OPTIONS, ClassArchive, Recording, default_cache
from oncebus.pipeline.query import pipeline_session, start_query

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_STOP_TIMEOUT = "2s"


class PipelineFailed(OncebusError):
    """The query has ended with an error."""


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
    """Run the query until SIGTERM or SIGINT, or until the process `parent` is gone. Raises `PipelineFailed`.

    `session` makes Spark for a master and the options of its driver's Java. In the folder `cache` is an archive of
    classes that lets Java start sooner; with `record`, this run writes it as it ends.

    Raises `PipelineRefused` where another pipeline runs, or where the inbox is laid out in another number of shards.
    """
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    with _alone(folders):
        archive = ClassArchive(cache or default_cache())
        recording = Recording(archive) if record else None
        spark = session(master, [*OPTIONS, *(recording or archive).options])
        if recording is None and not archive.exists():
            log.info(
                "Spark has started without a class archive. To start sooner from now on, run once: oncebus warm-up"
            )
        # Spark's own handler for SIGINT cancels jobs.
        signal.signal(signal.SIGINT, lambda *_: asked.set())
        try:
            _run(spark, folders, shards, lambda: asked.wait(_LOOK_SECONDS) or _is_orphan(parent))
        except PySparkException as error:
            raise PipelineFailed(_one_line(error)) from error
        finally:
            spark.stop()
            if recording is not None:
                recording.close()


def _run(spark: SparkSession, folders: Folders, shards: int, is_over: Callable[[], bool]) -> None:
    # The gateway may not have made the inbox yet; with other shards than its own some would never be read.
    while (found := InboxReader(folders.inbox).shards()) is None:
        if is_over():
            return
    if found != shards:
        raise PipelineRefused(f"Inbox '{folders.inbox}' has {found} shards, not {shards}. Set 'shards' to {found}.")
    spark.conf.set("spark.sql.streaming.stopTimeout", _STOP_TIMEOUT)
    query = start_query(spark, folders, shards=shards, tasks=spark.sparkContext.defaultParallelism)
    fields = {"master": spark.sparkContext.master, "query": str(query.id)}
    log.info("The pipeline runs", extra={"fields": fields})
    while query.isActive and not is_over():
        if log.isEnabledFor(logging.DEBUG) and (progress := query.lastProgress) is not None:
            fields = {"batch": progress["batchId"], "parts": progress["numInputRows"], **progress["durationMs"]}
            log.debug("A batch", extra={"fields": fields})
    error = query.exception()
    # A batch that does not end in time is run again by the next query, as after a kill.
    with suppress(Py4JError, PySparkException):
        query.stop()
    if error is not None:
        raise PipelineFailed(_one_line(error))


def _is_orphan(parent: int | None) -> bool:
    if parent is None or os.getppid() == parent:
        return False
    log.warning("The process that started the pipeline is gone; it ends too")
    return True


@contextmanager
def _alone(folders: Folders) -> Iterator[None]:
    """Hold the data folder against a second pipeline, for as long as this process lives."""
    path = folders.data / "pipeline.lock"
    try:
        folders.make()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PipelineRefused(f"Data folder '{folders.data}' cannot be written: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineRefused(f"Another pipeline runs over data folder '{folders.data}'. Stop it first.") from error
        yield
    finally:
        os.close(descriptor)


def _one_line(error: PySparkException | StreamingQueryException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The error that a task raised says more than Spark's wrapping of it.
    telling = [line for line in lines if line.startswith("oncebus.")]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0]
