"""The Spark session of a command: quiet, local unless told otherwise, and gone when the command is."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from oncebus.errors import OncebusError
from oncebus.spark.ports import protection


class SparkStartError(OncebusError):
    """There is no Spark to work with."""


@contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """A session for the block. What Spark says meanwhile goes to a file that is deleted with it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Py4J logs what goes wrong, traceback and all, under its own name and the root's; we see the same as an exception.
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="oncebus-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "spark.log")
        try:
            with _signals_deferred() as asked, output_to(log):
                spark = _start(master or "local[*]", scratch)
        except (PySparkRuntimeError, OSError) as error:
            raise SparkStartError(why_not(log, error)) from error
        # Spark's own handler asks the JVM to cancel jobs, in the midst of another call, which ends in tracebacks.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if asked:
                raise KeyboardInterrupt
            yield spark
        finally:
            spark.stop()


def _start(master: str, scratch: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("oncebus dedup")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"file:{scratch}/warehouse",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # How often tasks tell how many rows they have read.
        "spark.executor.heartbeatInterval": "1s",
        "spark.sql.streaming.stopTimeout": "60s",
        **protection(master),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def _signals_deferred() -> Iterator[list[int]]:
    """The signals to stop that came during the block, in which they do nothing.

    A JVM whose parent gives up while it starts is never told, and stays for ever.
    """
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda given, _: asked.append(given)) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Let what is started in the block write to the log and not to our standard output and error.

    Spark's logging could be configured, but not what the JVM itself and its launcher print. A child keeps what it has
    inherited, so all its words go there, for as long as it lives.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for handle in (*kept, target):
            os.close(handle)


def why_not(log: Path, error: BaseException) -> str:
    """Why Spark did not start, from what it said."""
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line.strip() for line in said if line.strip() and not line.startswith(("WARNING", "Using Spark's"))]
    return f"Spark did not start: {telling[-1] if telling else error} (Is Java 17 or later installed?)"
