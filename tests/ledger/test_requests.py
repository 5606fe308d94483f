"""The requests that a ledger sends to an object store are those that docs/reference/windows.md counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.scale_counted import CountingStorage, Counts, Sender, run_task
from bench.scale_model import AZURE, CHUNK, S3, Load, Store

from oncebus.ledger import Ledger
from oncebus.ledger.storage import storage_at
from tests.ledger.faults import relay
from tests.object_stores import Server

STORES = {"s3": S3, "azure": AZURE}
LOAD = Load(rate=1, window=600, interval=30, parts=1)
BATCHES = 20
"""Enough for merges, and for files that are deleted."""


def kind_of(request: str) -> str:
    """Return what a store charges for a request as."""
    method, path = request.split(" ", 1)
    query = path.partition("?")[2]
    if "comp=list&" in f"{query}&" or "list-type=2" in query:
        return "LIST"
    if method == "DELETE" or query.startswith("delete") or "comp=batch" in query:
        return "DELETE"
    return "PUT" if method in ("PUT", "POST") else method


def run_batches(ledger: Ledger, sender: Sender, batches: range) -> None:
    for batch in batches:
        run_task(ledger, sender.rows(batch, 0), batch, 0, 1, int(sender.edges[batch + 1]))


def counted(store: Store, folder: Path) -> Counts:
    """Return what the counting storage says about the batches after the first."""
    current = Counts()
    ledger, sender = Ledger(CountingStorage(str(folder), store, 0, lambda: current)), Sender(LOAD, BATCHES)
    ledger.describe_or_check(["id string"], has_secret=True)
    run_batches(ledger, sender, range(1))
    current = Counts()
    run_batches(ledger, sender, range(1, BATCHES))
    return current


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_store_gets_the_requests_that_the_simulation_counts(
    kind: str, object_servers: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = object_servers(kind)
    with relay(server.port) as between:
        for name, value in server.behind(between.server_port).environment.items():
            monkeypatch.setenv(name, value)
        ledger, sender = Ledger.open(server.new_location()), Sender(LOAD, BATCHES)
        ledger.describe_or_check(["id string"], has_secret=True)
        run_batches(ledger, sender, range(1))
        between.seen.clear()
        run_batches(ledger, sender, range(1, BATCHES))
        found = Counter(kind_of(request) for request in between.seen)
    expected = counted(STORES[kind], tmp_path / "ledger")
    assert expected.deleted >= 8
    assert (found["LIST"], found["PUT"], found["GET"]) == (expected.pages, expected.puts, expected.gets)
    assert found["HEAD"] == 0


@pytest.mark.parametrize("kind", ["s3", "azure"])
@pytest.mark.parametrize("size", [CHUNK, 2 * CHUNK + 1])
def test_a_large_file_takes_several_puts(
    kind: str, size: int, object_servers: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = object_servers(kind)
    with relay(server.port) as between:
        for name, value in server.behind(between.server_port).environment.items():
            monkeypatch.setenv(name, value)
        storage_at(server.new_location()).publish("large", [bytes(size)])
        assert {kind_of(request) for request in between.seen} == {"PUT"}
        assert len(between.seen) == STORES[kind].puts(size)
