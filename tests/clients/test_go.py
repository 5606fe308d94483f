"""The official client for Go. Each scenario in go/ is one test here; all run in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import golang, suite
from .served import Served

KINDS = {"plain": 25, "short": 1, "twice": 1, "sessions": 7, "short-sessions": 3, "topic": 5, "disabled": 1}
KINDS |= {"detecting": 3, "detecting-topic": 1, "detecting-sessions": 1, "detecting-partitioned": 1}
"""How many entities of each kind the scenarios take."""
WHY_NOT = golang.missing()

pytestmark = [pytest.mark.release, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


@pytest.fixture(scope="module")
def running(
    served: Served, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[suite.Suite]:
    """Start the scenarios that are selected."""
    names = suite.selected(request, test_go)
    entities = {kind: served.pool.take(kind, count) for kind, count in KINDS.items()}
    with golang.running(served, names, entities, tmp_path_factory.mktemp("go")) as started:
        yield started


@pytest.mark.parametrize("scenario", golang.scenarios())
def test_go(running: suite.Suite, scenario: str) -> None:
    running.wait_for(scenario)
