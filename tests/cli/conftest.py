from __future__ import annotations

from collections.abc import Iterator

import pytest

from .served_broker import Served, served_broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that the tests of a module share, each with entities of its own."""
    with served_broker(tmp_path_factory.mktemp("served")) as running:
        yield running
