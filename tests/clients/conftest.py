from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from .served import Served, running_service
from .together import Played, begin


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for all tests here: its start takes many seconds."""
    with running_service(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="module")
def played(served: Served, request: pytest.FixtureRequest) -> Iterator[Played]:
    """The scenarios of a module, all under way."""
    yield begin(served, request.module, request.session.items)
    # What clients have left open is found here, where the module's own filters of warnings hold, and not later.
    gc.collect()
