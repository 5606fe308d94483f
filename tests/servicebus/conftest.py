from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bus import Bus, running_bus


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """One for all tests here, each with queues of its own."""
    with running_bus(tmp_path_factory.mktemp("bus")) as running:
        yield running
