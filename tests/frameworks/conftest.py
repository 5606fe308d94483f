from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.serve.clients import Client, Running
from tests.programs.serve.services import service
from tests.protocols.monitoring import collector as collectors
from tests.protocols.monitoring.collector import Collector


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Run the collector to which the broker exports traces."""
    with collectors.collector() as running:
        yield running


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frameworks")


@pytest.fixture(scope="package")
def broker(folder: Path, collector: Collector) -> Iterator[Running]:
    """Run one broker for all frameworks. It traces messages."""
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with service(folder, "service", [], environment=tracing) as running:
        running.ready()
        yield running


@pytest.fixture(scope="package")
def client(broker: Running, folder: Path) -> Client:
    return Client(broker.ready(), folder / "data")


@pytest.fixture(scope="package")
def connection(broker: Running) -> str:
    """Return the connection string that the broker prints."""
    found = re.search(r"^Endpoint=\S+", broker.out.read_text(), re.MULTILINE)
    assert found is not None
    return found[0]
