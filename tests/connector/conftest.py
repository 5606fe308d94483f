from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from oncebus.connector import register

from .bus import Bus, running_bus


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """Run one broker for all tests of the package, because its start takes many seconds."""
    with running_bus(tmp_path_factory.mktemp("bus")) as running:
        yield running
    gc.collect()


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Return the shared session, which knows the data source."""
    register(spark)
    return spark
