"""Drivers of Spark: sessions set up for tests."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tests.cluster import FILE_MANAGER

MAY_BE_KILLED = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false"}
"""Without this, Spark refuses its own checkpoint if it was killed while it wrote the first file."""

LOSES_EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
}
"""The settings of an application that goes on while its executors are killed."""


def quiet_session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session without log output, for this machine."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config(*FILE_MANAGER)
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
