"""The official client for Java, and JMS. Each scenario in java/src is one test here; all run in one JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import java, suite
from .served import Served

KINDS = {"plain": 45, "short": 5, "twice": 2, "sessions": 10, "short-sessions": 3, "topic": 6, "disabled": 2}
KINDS |= {"detecting": 4, "detecting-topic": 2, "detecting-sessions": 2, "detecting-partitioned": 2}
"""How many entities of each kind the scenarios take."""
WHY_NOT = java.missing()

# In `make test`, the sample in Java of `test_samples` sends twice and receives once.
pytestmark = [pytest.mark.release, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


@pytest.fixture(scope="module")
def running(
    served: Served, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[suite.Suite]:
    """Start the scenarios that are selected."""
    names = suite.selected(request, test_java)
    entities = {kind: served.pool.take(kind, count) for kind, count in KINDS.items()}
    with java.running(served, names, entities, tmp_path_factory.mktemp("java")) as started:
        yield started


@pytest.mark.parametrize("scenario", java.scenarios())
def test_java(running: suite.Suite, scenario: str) -> None:
    running.wait_for(scenario)
