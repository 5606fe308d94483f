"""The Spark session of a short program: quiet, and stopped when the program ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from oncebus.spark.ports import protection
from oncebus.spark.starting import SparkStartError, output_to, quiet_py4j, start_failure


@contextmanager
def quiet_session(master: str, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session. Its output goes to a temporary file. Raises `SparkStartError`.

    `settings` override those that every program uses.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet_py4j()
    with tempfile.TemporaryDirectory(prefix="oncebus-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "spark.log")
        try:
            with _signals_deferred() as signals, output_to(log):
                spark = _start(master, name, scratch, settings)
        except (PySparkRuntimeError, OSError) as error:
            raise SparkStartError(start_failure(log, error)) from error
        # Spark's own handler calls the JVM to cancel jobs, even in the middle of another call. That ends in tracebacks.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if signals:
                raise KeyboardInterrupt
            yield spark
        finally:
            spark.stop()


def _start(master: str, name: str, scratch: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(name)
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"file:{scratch}/warehouse",
        **protection(master),
    }
    for key, value in (common | dict(settings)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _signals_deferred() -> Iterator[list[int]]:
    """Yield a list that collects SIGINT and SIGTERM during the block instead of acting on them.

    If this process ended while the JVM is starting, the JVM would never notice and would run for ever.
    """
    signals: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda given, _: signals.append(given)) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
