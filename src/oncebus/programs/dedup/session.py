"""The Spark session of a run: local by default."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType

from pyspark.sql import SparkSession

from oncebus.spark.session import quiet_session

_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The interval at which tasks report how many rows they have read.
    "spark.executor.heartbeatInterval": "1s",
    "spark.sql.streaming.stopTimeout": "60s",
    # Otherwise Spark refuses its own checkpoint if it was killed while it wrote the first file. Nobody else uses it.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}


def spark_session(
    master: str | None, settings: Mapping[str, str] = MappingProxyType({})
) -> AbstractContextManager[SparkSession]:
    """Return a session for a `with` block, with `settings` added. Raises `SparkStartError` if Spark does not start."""
    return quiet_session(master or "local[*]", "oncebus dedup", {**_SETTINGS, **settings})
