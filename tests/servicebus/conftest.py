from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bus import Bus, running_bus


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """Run one bus for all tests of the package. Each test creates its own entities."""
    with running_bus(tmp_path_factory.mktemp("bus")) as running:
        yield running
