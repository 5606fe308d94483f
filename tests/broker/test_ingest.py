"""Ingesting several outbox entries at once: together if they are small, and never held up by a later bad one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker import ingest
from oncebus.broker.addresses import Address
from oncebus.engine.folders import Folders
from oncebus.engine.outbox import Outbox
from oncebus.engine.store import Mode, Store
from oncebus.engine.store.entries import OutboxEntries
from oncebus.engine.store.messages import Messages
from oncebus.model.entities import Queue
from oncebus.model.messages import Result
from oncebus.pipeline.driver import LocalDriver
from oncebus.values import disk
from tests.broker.in_process import SHARDS, running_broker
from tests.broker.scenes import message, scene

Q = Address("q")


async def entries_wait(data: Path, ids: str) -> None:
    """Leave an outbox entry for each message, which no store has ingested."""
    async with running_broker(data, pipeline=False) as broker:
        await broker.change(lambda catalogue, now: catalogue.create(Queue(name="q"), now))
        for each in ids:
            await broker.send("q", [message(each)])
    pipeline = LocalDriver(Folders(data), shards=SHARDS)
    while pipeline.step(most_commits=1):
        pass


async def received(data: Path) -> list[str]:
    # Not for the broker's last commit: an earlier broker may have left a pulse, which no pipeline processes here.
    newest = Outbox(Folders(data).outbox).newest()
    assert newest is not None
    async with running_broker(data, pipeline=False) as broker:
        assert await broker.pipeline.wait_for(newest.last, 60)
        found = await broker.receive(Q, 100, mode=Mode.RECEIVE_AND_DELETE)
        return [each.message.message_id for each in found]


@pytest.mark.parametrize(("most_rows", "transactions"), [(4_000, 1), (2, 2), (1, 4)])
def test_small_entries_are_ingested_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows: int, transactions: int
) -> None:
    ingested: list[tuple[int, int, int]] = []
    one = OutboxEntries.ingest

    def note(entries: OutboxEntries, results: Sequence[Result], first: int, last: int, *rest: object) -> object:
        ingested.append((first, last, len(results)))
        return one(entries, results, first, last, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(OutboxEntries, "ingest", note)
    monkeypatch.setattr(ingest, "MOST_ROWS", most_rows)
    asyncio.run(entries_wait(tmp_path, "abcd"))
    assert asyncio.run(received(tmp_path)) == ["a", "b", "c", "d"]
    assert len(ingested) == transactions
    assert [first for first, _, _ in ingested] == [1, *(last + 1 for _, last, _ in ingested[:-1])]
    assert sum(rows for _, _, rows in ingested) == 4
    # All but the last are deleted, and in it one can see how far the pipeline came.
    assert [entry.last for entry in Outbox(Folders(tmp_path).outbox).next_entries(3)] == [4]
    assert Outbox(Folders(tmp_path).outbox).next_entry(2) is None


def test_a_damaged_entry_does_not_hold_up_those_before_it(tmp_path: Path) -> None:
    asyncio.run(entries_wait(tmp_path, "abcd"))
    bad = Outbox(Folders(tmp_path).outbox).next_entries(0)[2]
    [path] = Folders(tmp_path).outbox.glob(f"{bad.first:020d}-*")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])

    async def scenario() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            assert await broker.pipeline.wait_for(bad.after, 60)
            while broker.pipeline.trouble is None:
                await asyncio.sleep(0.01)
            assert "is damaged" in broker.pipeline.trouble
            path.write_bytes(whole)
            assert await broker.pipeline.wait_for(bad.last, 60)

    asyncio.run(scenario())
    assert asyncio.run(received(tmp_path)) == ["a", "b", "c", "d"]


def test_an_entry_that_a_power_cut_could_lose_is_not_ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(entries_wait(tmp_path, "a"))
    outbox, sync = str(Folders(tmp_path).outbox), disk.sync

    def fail(path: disk.StrPath) -> None:
        if str(path) == outbox:
            raise OSError(5, "Input/output error")
        sync(path)

    async def wait_for_trouble() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            while broker.pipeline.trouble is None:
                await asyncio.sleep(0.001)
            assert not await broker.receive(Q, 1)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", fail)
        asyncio.run(wait_for_trouble())
    assert asyncio.run(received(tmp_path)) == ["a"]


def test_a_waiting_receiver_gets_its_message_in_the_transaction_that_ingests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[list[str]] = []
    begin, ingest_entry, receive = Store.transaction, OutboxEntries.ingest, Messages.receive

    def count(store: Store) -> Any:
        transactions.append([])
        return begin(store)

    def note_ingest(entries: OutboxEntries, results: Sequence[Result], *rest: Any) -> Any:
        transactions[-1] += [f"ingest {result.row.message_id}" for result in results]
        return ingest_entry(entries, results, *rest)

    def note_receive(messages: Messages, *args: Any) -> Any:
        found = receive(messages, *args)
        transactions[-1] += [f"receive {message.message_id}" for message in found]
        return found

    async def scenario() -> None:
        # Without chores, which would use the store at any moment.
        async with scene(tmp_path) as stage:
            broker = stage.broker
            await stage.queue("q")
            waiting = asyncio.create_task(broker.receive(Q, 1, wait=60))
            while not broker.waiters:
                await asyncio.sleep(0)
            await broker.send("q", [message("a")])
            assert [each.message.message_id for each in await waiting] == ["a"]

    monkeypatch.setattr(Store, "transaction", count)
    monkeypatch.setattr(OutboxEntries, "ingest", note_ingest)
    monkeypatch.setattr(Messages, "receive", note_receive)
    asyncio.run(scenario())
    assert ["ingest a", "receive a"] in transactions
