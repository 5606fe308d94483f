from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.clients import Running
from serve.services import service


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one broker for all frameworks."""
    with service(tmp_path_factory.mktemp("frameworks"), "service", []) as running:
        running.ready()
        yield running
