from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncebus.connector import register

from .bus import Bus, running_bus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about unclosed sockets: azure-servicebus does not close those of lost connections."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


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
