"""Body files: none is lost that a message names, and none stays that no message will ever name."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from oncebus.engine.inbox import BodyFiles, InboxFull
from oncebus.engine.store import Mode, StoreFull
from oncebus.model.entities import Tier
from tests.broker.in_process import FakeTime
from tests.broker.scenes import SECOND, TRANSFER_DEAD, Scene, ids, message, play, scene

LARGE = bytes(range(256)) * 400


def files(data: Path) -> set[str]:
    return set(os.listdir(data / "bodies"))


async def delete_bodies(scene: Scene) -> None:
    await scene.core.chores._delete_bodies()


def no_room(*arguments: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_start_deletes_the_bodies_that_no_message_names_and_no_others(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue("q", detects=True)
            await first.queue("target")
            await first.queue("source", forward_to="target")
            await first.send("q", message("in the store", LARGE), message("in the store", LARGE))
            await first.send("source", message("forwarded", LARGE))
            await first.flow()
            first.pipeline.is_paused = True
            await first.core.chores.requeue.step()
            await first.send("q", message("in the inbox", LARGE))
            needed = files(tmp_path)
        # Written just before a crash, so that no row names them.
        orphans = [BodyFiles(tmp_path / "bodies").write(LARGE) for _ in range(3)]
        (tmp_path / "bodies" / ".tmp-half").write_bytes(b"half")
        assert files(tmp_path) == {*needed, *orphans, ".tmp-half"}
        async with scene(tmp_path, time) as second:
            assert files(tmp_path) == needed
            found = await second.receive()
            assert ids(found) == ["in the store", "in the inbox"]
            assert all(each.body.endswith(LARGE) for each in [*found, *await second.receive("target")])

    asyncio.run(run())


def test_a_body_whose_row_was_refused_stays_until_a_crash_cannot_bring_the_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        with monkeypatch.context() as patched:
            patched.setattr("oncebus.values.disk.os.fdatasync", no_room)
            # The written bytes cannot be truncated either.
            patched.setattr("oncebus.values.disk.os.ftruncate", no_room)
            with pytest.raises(InboxFull):
                await scene.send("q", message("a", LARGE))
        await delete_bodies(scene)
        assert len(files(tmp_path)) == 1
        await scene.send("q", message("b", LARGE))
        await delete_bodies(scene)
        assert len(files(tmp_path)) == 1
        [received] = await scene.receive()
        assert received.body.endswith(LARGE)

    play(tmp_path, plot)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_body_whose_row_was_refused_is_deleted_at_once_if_the_row_was_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Bodies must not pile up on a disk that stays full."""

    async def plot(scene: Scene) -> None:
        await scene.queue()
        monkeypatch.setattr(f"oncebus.values.disk.os.{call}", no_room)
        for _ in range(3):
            with pytest.raises(InboxFull):
                await scene.send("q", message("a", LARGE))
        await delete_bodies(scene)
        assert files(tmp_path) == set()
        monkeypatch.undo()
        await scene.send("q", message("b", LARGE))
        assert await scene.taken() == ["b"]

    play(tmp_path, plot)


def test_a_crash_that_brings_a_refused_row_back_finds_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with scene(tmp_path) as first:
            await first.queue()
            monkeypatch.setattr("oncebus.values.disk.os.fdatasync", no_room)
            monkeypatch.setattr("oncebus.values.disk.os.ftruncate", no_room)
            with pytest.raises(InboxFull):
                await first.send("q", message("a", LARGE))
            await delete_bodies(first)
        monkeypatch.undo()
        async with scene(tmp_path) as second:
            for received in await second.receive():
                assert received.body.endswith(LARGE)
            assert len(files(tmp_path)) == (await second.counts()).active == 1

    asyncio.run(run())


def test_a_sender_that_gives_up_while_its_body_is_written_leaves_none(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        body_files = scene.core.bodies._body_files
        write, begun, free = body_files.write, threading.Event(), threading.Event()

        def slowly(*arguments: Any) -> str:
            begun.set()
            free.wait(20)
            return write(*arguments)

        body_files.write = slowly  # type: ignore[method-assign, assignment]
        sending = asyncio.create_task(scene.send("q", message("a", LARGE), message("b", LARGE)))
        await asyncio.to_thread(begun.wait, 20)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert scene.core.background._tasks
        free.set()
        await scene.core.background.drain()
        assert files(tmp_path) == set()
        assert scene.core.entrance.acceptor.last_commit == 0

    play(tmp_path, plot)


def test_when_one_body_of_a_batch_cannot_be_written_the_others_are_deleted_too(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        body_files = scene.core.bodies._body_files
        write = body_files.write
        written: list[str] = []

        def until_it_is_full(*arguments: Any) -> str:
            if len(written) == 1:
                raise InboxFull("no room")
            written.append(write(*arguments))
            return written[-1]

        body_files.write = until_it_is_full  # type: ignore[method-assign, assignment]
        with pytest.raises(InboxFull):
            await scene.send("q", message("a", LARGE), message("b", LARGE))
        assert (len(written), files(tmp_path)) == (1, set())

    play(tmp_path, plot)


def test_a_body_that_is_forwarded_outlives_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebus.broker.bodies.KEPT_SECONDS", 0.0)

    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        await scene.queue("source", forward_to="target")
        await scene.send("source", message("a", LARGE))
        await scene.flow()
        scene.pipeline.is_paused = True

        def is_full(*arguments: object) -> None:
            raise StoreFull("no room")

        with monkeypatch.context() as patched:
            patched.setattr(scene.core.store._store.requeues, "end", is_full)
            with pytest.raises(StoreFull):
                await scene.core.chores.requeue.step()
        # The row is in the inbox, the store does not know that, and the source is deleted.
        await scene.delete_queue("source")
        for _ in range(2):
            await delete_bodies(scene)
        scene.pipeline.is_paused = False
        await scene.rounds(2)
        [received] = await scene.receive("target", mode=Mode.RECEIVE_AND_DELETE)
        assert received.body.endswith(LARGE)
        for _ in range(2):
            await delete_bodies(scene)
        assert files(tmp_path) == set()

    play(tmp_path, plot)


def test_messages_that_had_not_left_a_deleted_source_are_not_appended_any_more(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        target = await scene.queue("target")
        await scene.queue("source", forward_to="target")
        await scene.send("source", message("a", LARGE))
        await scene.flow()
        policies = scene.core.catalogues.policies
        batch = await scene.core.store.run(lambda store: store.requeues.next_batch(policies, 1))
        await scene.delete_queue("source")
        await scene.core.chores.requeue._append(target.id, batch)
        assert (len(batch), scene.core.entrance.acceptor.last_commit) == (1, 1)

    play(tmp_path, plot)


def test_a_target_refuses_a_message_that_is_too_large_even_with_a_body_file(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", max_message_size_in_kilobytes=1024)
        await scene.queue("source", max_message_size_in_kilobytes=2048, forward_to="target")
        await scene.send("source", message("large", bytes(1100 * 1024)))
        await scene.send("source", message("fine", bytes(900 * 1024)))
        await scene.rounds(2)
        assert await scene.taken("target") == ["fine"]
        [stranded] = await scene.receive("source", sub_queue=TRANSFER_DEAD)
        assert (stranded.message.message_id, stranded.message.reason) == ("large", "MessageTooLarge")

    play(tmp_path, plot, tier=Tier.PREMIUM)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), RuntimeError("no thread")], ids=["disk", "thread"])
def test_a_large_message_is_not_deleted_before_its_body_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=60 * SECOND)
        await scene.send("q", message("small"), message("large", LARGE), message("last"))

        def fails(*arguments: object) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(BodyFiles, "read", fails)
            assert await scene.taken() == ["small", "last"]
        assert (await scene.counts()).active == 1
        await scene.later(60)
        [received] = await scene.receive(mode=Mode.RECEIVE_AND_DELETE)
        assert received.body.endswith(LARGE)
        found = received.message
        assert (found.message_id, found.deliveries, found.token, found.locked_until) == ("large", 2, None, None)
        assert (await scene.counts()).active == 0

    play(tmp_path, plot)


def test_a_large_message_that_cannot_be_deleted_is_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=60 * SECOND)
        await scene.send("q", message("small"), message("large", LARGE))

        def is_full(*arguments: object, **options: object) -> None:
            raise StoreFull("no room")

        with monkeypatch.context() as patched:
            patched.setattr(scene.core.store._store.locks, "settle", is_full)
            assert await scene.taken() == ["small"]
        await scene.later(60)
        assert await scene.taken() == ["large"]

    play(tmp_path, plot)


def test_a_receiver_that_gives_up_while_a_large_body_is_read_leaves_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("large", LARGE))
        reading, go_on = threading.Event(), threading.Event()
        read = BodyFiles.read

        def read_slowly(self: BodyFiles, name: str) -> memoryview:
            reading.set()
            go_on.wait(20)
            return read(self, name)

        with monkeypatch.context() as patched:
            patched.setattr(BodyFiles, "read", read_slowly)
            receiving = asyncio.create_task(scene.receive(mode=Mode.RECEIVE_AND_DELETE))
            await asyncio.to_thread(reading.wait, 20)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            go_on.set()
        [received] = await scene.receive(mode=Mode.RECEIVE_AND_DELETE, wait=20)
        assert (received.message.message_id, received.message.deliveries) == ("large", 1)

    play(tmp_path, plot)
