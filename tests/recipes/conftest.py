from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kafka import Kafka, running_kafka


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run one broker for all recipes."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running
