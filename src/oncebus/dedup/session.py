"""The Spark session of a run: quiet, local unless told otherwise, and gone when the run ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from oncebus.spark.ports import protection
from oncebus.spark.starting import SparkStartError, output_to, quiet_py4j, why_not


@contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """A session for the block. What Spark says meanwhile goes to a file that is deleted with it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet_py4j()
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
