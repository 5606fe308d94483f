"""Clients that disconnect, full disks, and unexpected failures."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker import ingest as ingest_module
from oncebus.broker.addresses import Address
from oncebus.broker.errors import BrokerClosed
from oncebus.engine.inbox import InboxError, InboxFull, RowsRefused, writer
from oncebus.engine.store import Action, EntryRefused, Mode, Outcome, Settlement, StoreFull
from oncebus.model.entities import CatalogueFiles, NotFound
from tests.broker.scenes import SECOND, Scene, ids, message, play

Q = Address("q")


@contextmanager
def held_up(executor: Any) -> Iterator[None]:
    free = threading.Event()
    executor.begin(free.wait)
    try:
        yield
    finally:
        free.set()


async def give_up(task: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# Clients that disconnect


def test_a_cancelled_send_is_accepted_and_counted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue()
        scene.pipeline.is_paused = True
        with held_up(scene.core.entrance.acceptor._thread):
            await give_up(asyncio.create_task(scene.send("q", message("a", bytes(500)))))
        await scene.send("q", "b")
        assert scene.core.accounting.in_pipeline(queue.id) > 500
        scene.pipeline.is_paused = False
        assert await scene.peeked() == ["a", "b"]
        assert scene.core.accounting.in_pipeline(queue.id) == 0

    play(tmp_path, plot)


def test_messages_received_for_a_cancelled_receiver_are_put_back(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        await scene.flow()
        with held_up(scene.core.store._thread):
            await give_up(asyncio.create_task(scene.broker.receive(Q, 1)))
        [received] = await scene.broker.receive(Q, 1, wait=20)
        assert received.message.deliveries == 1

    play(tmp_path, plot)


def test_whenever_a_receiver_is_cancelled_the_message_is_put_back_or_was_received(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("small"), message("large", bytes(100_000)))
        await scene.flow()
        for turns in range(12):
            task = asyncio.create_task(scene.broker.receive(Q, 2))
            waited = scene.core.store
            while not waited._queue and (waited._task is None or waited._task.done()):
                await asyncio.sleep(0)
            assert waited._task is not None
            if turns:
                # From the moment of the answer on, one loop iteration later each time.
                await waited._task
            for _ in range(turns - 1):
                await asyncio.sleep(0)
            task.cancel()
            [found] = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(found, list):
                found = await scene.broker.receive(Q, 2, wait=20)
                if len(found) < 2:
                    found += await scene.broker.receive(Q, 1, wait=20)
            for each in found:
                await scene.settle("q", each, Action.RELEASE)
            assert sorted(ids(found)) == ["large", "small"]

    play(tmp_path, plot)


def test_a_session_accepted_for_a_cancelled_receiver_is_free(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        await scene.send("q", message("a", session="s"))
        await scene.flow()
        with held_up(scene.core.store._thread):
            await give_up(asyncio.create_task(scene.broker.accept_session(Q, None)))
        lock = await scene.broker.accept_session(Q, None, wait=20)
        assert lock is not None

    play(tmp_path, plot)


@pytest.mark.parametrize("mode", Mode)
def test_work_not_yet_begun_for_a_cancelled_receiver_is_not_done(tmp_path: Path, mode: Mode) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        await scene.flow()
        with held_up(scene.core.store._thread):
            first = asyncio.create_task(scene.broker.counts("q"))
            await asyncio.sleep(0.01)
            await give_up(asyncio.create_task(scene.broker.receive(Q, 1, mode=mode)))
        await first
        [received] = await scene.receive()
        assert received.message.deliveries == 1

    play(tmp_path, plot)


def test_a_cancelled_settlement_is_done_completely_or_not_at_all(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        [held] = await scene.receive()
        assert held.message.token is not None
        with held_up(scene.core.store._thread):
            await give_up(
                asyncio.create_task(scene.broker.settle(Q, [Settlement(Action.COMPLETE, held.message.token)]))
            )
        assert await scene.settle("q", held, Action.COMPLETE) in (Outcome.DONE, Outcome.MESSAGE_LOCK_LOST)
        assert (await scene.counts()).active == 0

    play(tmp_path, plot)


def test_a_cancelled_change_takes_effect_and_the_next_one_works(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        for number in range(5):
            task = asyncio.create_task(scene.queue(f"q{number}"))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await scene.queue("last")
        assert CatalogueFiles(scene.folders.catalogue).versions()[-1] == scene.broker.catalogue.version

    play(tmp_path, plot)


def test_an_entity_that_changes_while_a_large_body_is_written_is_checked_again(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        body_files = scene.core.bodies._body_files
        write, written = body_files.write, threading.Event()

        def slowly(*arguments: Any) -> str:
            written.wait(20)
            return write(*arguments)

        body_files.write = slowly  # type: ignore[method-assign, assignment]
        sending = asyncio.create_task(scene.send("q", message("a", bytes(100_000))))
        await asyncio.sleep(0.01)
        # Other sends overtake it, and numbers keep the order of acceptance.
        assert await scene.send("q", "b") == [1]
        await scene.delete_queue()
        written.set()
        with pytest.raises(NotFound):
            await sending
        async with asyncio.timeout(30):
            while list((tmp_path / "bodies").iterdir()):
                await asyncio.sleep(0.005)

    play(tmp_path, plot)


def test_numbers_have_the_order_of_the_inbox_although_bodies_are_written_first(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        sizes = [100_000 if n % 3 == 0 else 10 for n in range(30)]
        sent = await asyncio.gather(*(scene.send("q", message(f"m{n}", bytes(size))) for n, size in enumerate(sizes)))
        found = await scene.receive()
        assert [each.message.sequence for each in found] == list(range(1, 31))
        assert ids(found) == [f"m{n}" for _, n in sorted((numbers[0], n) for n, numbers in enumerate(sent))]

    play(tmp_path, plot)


# Full disks


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_full_disk_refuses_a_send_with_one_clear_error_and_the_next_works(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue(detects=True)

        def full(*arguments: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(f"oncebus.values.disk.os.{call}", full)
            for _ in range(2):
                with pytest.raises(InboxFull, match="cannot be written: No space left on device"):
                    await scene.send("q", "a")
        assert scene.core.accounting.in_pipeline(queue.id) == 0
        await scene.send("q", "a")
        assert await scene.peeked() == ["a"]
        assert (await scene.counts()).duplicates == 0

    play(tmp_path, plot)


def test_a_commit_that_is_durable_but_not_announced_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        with monkeypatch.context() as patched:

            def fail(self: object) -> None:
                raise InboxError("cannot be announced")

            patched.setattr(writer.InboxWriter, "_announce", fail)
            assert await scene.send("q", "a") == [1]
        await scene.send("q", "b")
        assert await scene.peeked() == ["a", "b"]

    play(tmp_path, plot)


def test_one_send_that_is_refused_does_not_refuse_its_neighbours(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue()
        with held_up(scene.core.entrance.acceptor._thread):
            sends = [
                asyncio.create_task(scene.send("q", each)) for each in ("first", "a", message("bad", ttl=-(2**70)), "b")
            ]
            await asyncio.sleep(0.01)
        first, a, bad, b = await asyncio.gather(*sends, return_exceptions=True)
        assert (first, a, b) == ([1], [2], [4])
        assert isinstance(bad, RowsRefused)
        assert await scene.peeked() == ["first", "a", "b"]
        assert scene.core.accounting.in_pipeline(queue.id) == 0

    play(tmp_path, plot)


def test_ingest_is_retried_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ingest_module, "BACK_OFF_SECONDS", 0.001)

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        store = scene.core.store._store
        ingest = store.entries.ingest
        errors: list[Exception] = [StoreFull("no room")] * 3 + [EntryRefused("odd"), KeyError("unexpected")]

        def fail(*arguments: Any) -> Any:
            ingest(*arguments)
            raise errors.pop(0)

        monkeypatch.setattr(store.entries, "ingest", lambda *arguments: (fail if errors else ingest)(*arguments))
        await scene.send("q", "a", "a")
        await scene.flow()
        counts = await scene.counts()
        assert (counts.new, counts.duplicates, counts.active) == (1, 1, 1)
        async with asyncio.timeout(30):
            while scene.broker.pipeline.trouble:
                await asyncio.sleep(0.001)

    play(tmp_path, plot)
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert [text.rsplit(": ")[-1] for text in said] == ["no room", "odd", "'unexpected'"]


def test_a_chore_that_fails_is_shown_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("oncebus.broker.chores.BACK_OFF_SECONDS", 0.001)
    monkeypatch.setattr("oncebus.broker.chores.EVERY_SECONDS", 0.001)

    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=5 * SECOND)
        await scene.send("q", "a")
        await scene.receive()
        chores = scene.core.chores
        failed = asyncio.Event()
        locks = chores.all[0]
        do = locks._do

        async def fail() -> None:
            failed.set()
            raise ZeroDivisionError("odd")

        locks._do = fail
        task = asyncio.create_task(chores.run())
        await failed.wait()
        await asyncio.sleep(0.02)
        assert scene.broker.pipeline.trouble == "odd"
        locks._do = do
        scene.time.advance(5)
        assert ids(await scene.broker.receive(Q, 1, wait=20)) == ["a"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(tmp_path, plot)
    assert len([record for record in caplog.records if "A chore failed" in record.message]) == 1


# The end


def test_closing_finishes_work_under_way_and_refuses_the_rest(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        under_way = [asyncio.create_task(scene.send("q", f"m{n}")) for n in range(5)]
        changing = asyncio.create_task(scene.queue("new"))
        await scene.queue("empty")
        waiting = asyncio.create_task(scene.broker.receive(Address("empty"), 1, wait=20))
        await asyncio.sleep(0)
        closing = asyncio.create_task(scene.core.close())
        assert [number for [number] in await asyncio.gather(*under_way)] == [1, 2, 3, 4, 5]
        await closing
        assert (await changing).name == "new"
        for attempt in (scene.send("q", "late"), scene.broker.counts("q"), scene.broker.receive(Q, 1)):
            with pytest.raises(BrokerClosed):
                await attempt
        with pytest.raises(BrokerClosed):
            await waiting
        # The scene closes it again at the end.
        await scene.core.close()

    play(tmp_path, plot, read_your_sends=0.01)
