from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .bus import Bus, Transport, running_bus

_TRANSPORTS = {
    "test_client_sends": (Transport.TCP, Transport.WEBSOCKET),
    "test_client_receives": (Transport.TCP, Transport.SECURE_WEBSOCKET),
    "test_client_sessions": (Transport.TCP, Transport.WEBSOCKET),
    "test_client_manages": (Transport.TCP, Transport.SECURE_WEBSOCKET),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of what clients do over several transports."""
    transports = _TRANSPORTS.get(metafunc.module.__name__.rpartition(".")[2])
    if "bus" in metafunc.fixturenames and transports is not None:
        metafunc.parametrize("bus", transports, indirect=True, ids=str, scope="package")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore a warning about azure-servicebus itself, which calls aiohttp in an old way."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"))


@pytest.fixture(scope="package")
def bus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """Run one bus for all tests of the package, for each transport. Each test creates its own entities."""
    transport = getattr(request, "param", Transport.TCP)
    with running_bus(tmp_path_factory.mktemp("bus"), transport=transport) as running:
        yield running
