from __future__ import annotations

from pathlib import Path

import pytest

from tests.object_stores import Server


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache folder of its own, as if it ran on its own machine."""
    folder = tmp_path_factory.mktemp("machine") / "cache"
    monkeypatch.setenv("ONCEBUS_LEDGER_CACHE", str(folder))
    return folder


@pytest.fixture
def remote(object_store: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URI of a new folder, on each kind of object store."""
    return _reach(object_store, monkeypatch)


@pytest.fixture(params=["local", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("s3", "azure"))])
def location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a new folder, on each kind of storage. Only the slow tests start a server."""
    if request.param == "local":
        return str(tmp_path / "ledger")
    return _reach(request.getfixturevalue("object_servers")(request.param), monkeypatch)


def _reach(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.new_location()
