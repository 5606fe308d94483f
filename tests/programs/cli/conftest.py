from __future__ import annotations

from collections.abc import Iterator

import pytest

from .served_broker import Served, served_broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run a broker that the tests of a module share. Each test uses its own entities."""
    with served_broker(tmp_path_factory.mktemp("served")) as running:
        yield running
