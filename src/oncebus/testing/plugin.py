"""The plugin for pytest, with the fixtures `oncebus_broker` and `oncebus`. Installed with Oncebus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from oncebus.testing import run_broker

if TYPE_CHECKING:
    from oncebus.testing.broker import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings for the ini file."""
    parser.addini("oncebus_entities", "files with the entities that Oncebus has in each test", type="paths")
    parser.addini("oncebus_spark", "run Oncebus with Spark, as `oncebus serve` does", type="bool", default=False)


@pytest.fixture(scope="session")
def oncebus_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """Return the broker of this run. It is ready, has the entities of the setting `oncebus_entities`, and ends last."""
    with run_broker(*pytestconfig.getini("oncebus_entities"), spark=pytestconfig.getini("oncebus_spark")) as broker:
        yield broker


@pytest.fixture
def oncebus(oncebus_broker: Broker) -> Broker:
    """Return the broker of this run, reset: as if it had just started."""
    oncebus_broker.reset()
    return oncebus_broker
