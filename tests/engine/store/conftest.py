from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from oncebus.engine.store import Store


class Stores(Protocol):
    def __call__(self, name: str = "store", **options: object) -> Store:
        """Open the store with a name, or create it."""
        ...


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.slow)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Opens stores in SQLite or in PostgreSQL. The test may close them."""
    urls: dict[str, str] = {}

    def in_files(name: str = "store", **options: object) -> Store:
        store = Store.open(tmp_path / name, **options)  # type: ignore[arg-type]
        opened.callback(store.close)
        return store

    def in_postgres(name: str = "store", **options: object) -> Store:
        from oncebus.engine.postgres.store import open_store

        if name not in urls:
            urls[name] = request.getfixturevalue("postgres").make_schema()
        store = open_store(urls[name], **options)  # type: ignore[arg-type]
        opened.callback(store.close)
        return store

    with ExitStack() as opened:
        yield in_files if request.param == "files" else in_postgres


@pytest.fixture
def store(open_store: Stores) -> Store:
    return open_store()
