from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from .served import Served, running_service
from .together import Acts, Played


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker for all tests of the package, because its start takes many seconds."""
    with running_service(tmp_path_factory.mktemp("clients")) as running:
        yield running
    gc.collect()


@pytest.fixture(scope="package")
def acts(served: Served, request: pytest.FixtureRequest) -> Acts:
    return Acts(served, request.session.items)


@pytest.fixture(scope="module")
def played(acts: Acts, request: pytest.FixtureRequest) -> Iterator[Played]:
    """Start the scenarios of a module."""
    yield acts.begun(request.module)
    # Collect the sockets that clients left open now, while the module's own warning filters apply.
    gc.collect()
