"""Copies of a data folder: of a running broker at one moment, and of a stopped one."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from oncebus.broker.errors import ServerBusy
from oncebus.engine import snapshot
from oncebus.engine.backup import copy_durably
from oncebus.engine.folders import Folders
from oncebus.engine.snapshot import BackupFailed, drop_snapshot
from oncebus.engine.store import Action, Store
from oncebus.model.entities import Tier
from oncebus.model.messages import LARGEST_INLINE_BODY
from oncebus.values import disk
from tests.broker.in_process import FakeTime
from tests.broker.scenes import ids, message, scene

LARGE = b"x" * 2 * LARGEST_INLINE_BODY
"""A body that gets a file of its own."""


def test_a_snapshot_has_everything_answered_before_and_nothing_after(tmp_path: Path) -> None:
    async def play() -> None:
        time = FakeTime()
        async with scene(tmp_path / "data", time, tier=Tier.PREMIUM) as stage:
            await stage.queue("q", detects=True, max_message_size_in_kilobytes=2048)
            await stage.send("q", "done", "kept", message("large", LARGE))
            (first,) = await stage.receive("q", 1)
            await stage.settle("q", first, Action.COMPLETE)
            await stage.broker.snapshots.make()
            await stage.send("q", "later")
            size = copy_durably(Folders(tmp_path / "data").snapshot, tmp_path / "copy")
            assert size > len(LARGE)
        async with scene(tmp_path / "copy", time, tier=Tier.PREMIUM) as stage:
            await stage.send("q", "done", "kept", "later")
            found = await stage.receive("q", 10)
            assert ids(found) == ["kept", "large", "later"]
            assert bytes(found[1].body).endswith(LARGE)

    asyncio.run(play())


def test_sends_wait_while_a_snapshot_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with scene(tmp_path / "data", FakeTime()) as stage:
            await stage.queue("q")
            sending: list[Future[list[int]]] = []

            def begin(folders: Folders, really: Callable[[Folders], None] = snapshot.begin_snapshot) -> None:
                future = asyncio.run_coroutine_threadsafe(stage.send("q", "meanwhile"), loop)
                sending.append(future)
                really(folders)
                assert not future.done()

            loop = asyncio.get_running_loop()
            monkeypatch.setattr("oncebus.engine.engine.begin_snapshot", begin)
            await stage.broker.snapshots.make()
            await asyncio.wrap_future(sending[0])
            copy_durably(Folders(tmp_path / "data").snapshot, tmp_path / "copy")
        async with scene(tmp_path / "copy", FakeTime()) as stage:
            assert await stage.peeked() == []

    asyncio.run(play())


def test_the_store_may_change_while_its_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with scene(tmp_path / "data", FakeTime()) as stage:
            await stage.queue("q")
            await stage.send("q", "a", "b")
            (first,) = await stage.receive("q", 1)

            def end(folders: Folders, really: Callable[[Folders], None] = snapshot.end_snapshot) -> None:
                asyncio.run_coroutine_threadsafe(stage.settle("q", first, Action.COMPLETE), loop).result()
                really(folders)

            loop = asyncio.get_running_loop()
            monkeypatch.setattr("oncebus.engine.engine.end_snapshot", end)
            await stage.broker.snapshots.make()
            copy_durably(Folders(tmp_path / "data").snapshot, tmp_path / "copy")
            assert await stage.peeked() == ["b"]
        async with scene(tmp_path / "copy", FakeTime()) as stage:
            assert await stage.peeked() == ["a", "b"]

    asyncio.run(play())


def test_a_pipeline_that_is_down_is_waited_for_only_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebus.broker.snapshots.PATIENCE_SECONDS", 0.0)

    async def play() -> None:
        async with scene(tmp_path / "data", FakeTime()) as stage:
            await stage.queue("q")
            stage.pipeline.is_paused = True
            await stage.send("q", "a")
            with pytest.raises(ServerBusy, match=r"This one is [12] commits behind. Try again later"):
                await stage.broker.snapshots.make()
            # Sends go on.
            await stage.send("q", "b")

    asyncio.run(play())


def test_a_file_of_the_ledger_that_disappears_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = _folders(tmp_path)
    (folders.ledger / "a").write_text("a")
    (folders.ledger / "b").write_text("b")
    really = disk.link

    def link(path: Path, target: Path) -> None:
        if path.name == "a" and (folders.ledger / "b").exists():
            # Both are merged just now.
            (folders.ledger / "c").write_text("ab")
            (folders.ledger / "a").unlink()
            (folders.ledger / "b").unlink()
        really(path, target)

    monkeypatch.setattr(disk, "link", link)
    snapshot.begin_snapshot(folders)
    assert [path.name for path in (folders.snapshot / "ledger").iterdir()] == ["c"]
    drop_snapshot(folders)
    assert not folders.snapshot.exists()


def test_a_file_of_the_ledger_that_appears_may_replace_one_that_no_listing_showed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = _folders(tmp_path)
    (folders.ledger / "a").write_text("a")
    (folders.ledger / f"{disk.TEMPORARY}x").write_text("unfinished")
    really = disk.link

    def link(path: Path, target: Path) -> None:
        (folders.ledger / "merged").write_text("bc")
        really(path, target)

    monkeypatch.setattr(disk, "link", link)
    snapshot.begin_snapshot(folders)
    assert sorted(path.name for path in (folders.snapshot / "ledger").iterdir()) == ["a", "merged"]


def test_bodies_that_are_written_and_deleted_meanwhile_hold_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = _folders(tmp_path)
    for name in ("a", "b", "c"):
        (folders.body_files / name).write_text(name)
    linked: list[str] = []
    really = disk.link

    def link(path: Path, target: Path) -> None:
        linked.append(path.name)
        (folders.body_files / f"new{len(linked)}").write_text("new")
        (folders.body_files / "b").unlink(missing_ok=True)
        really(path, target)

    monkeypatch.setattr(disk, "link", link)
    snapshot.begin_snapshot(folders)
    assert linked == ["a", "b", "c"]
    assert sorted(path.name for path in (folders.snapshot / "bodies").iterdir()) == ["a", "c"]


def _folders(data: Path) -> Folders:
    folders = Folders(data)
    for part in (folders.inbox, folders.outbox, folders.ledger, folders.body_files):
        part.mkdir()
    return folders


@pytest.mark.parametrize("moment", ["keep", "end"])
def test_the_stores_file_may_change_again_after_the_end_whatever_happens_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    steps: list[str] = []
    keep, change = Store.keep_file, Store.change_file

    async def play() -> None:
        loop = asyncio.get_running_loop()

        async with scene(tmp_path / "data", FakeTime()) as stage:

            def cancel() -> None:
                cancelled = threading.Event()
                making.add_done_callback(lambda _: cancelled.set())
                loop.call_soon_threadsafe(making.cancel)
                assert cancelled.wait(60)

            def kept(store: Store) -> None:
                keep(store)
                if moment == "keep":
                    cancel()
                steps.append("keep")

            def changed(store: Store) -> None:
                change(store)
                steps.append("change")

            def end(folders: Folders, really: Callable[[Folders], None] = snapshot.end_snapshot) -> None:
                if moment == "end":
                    cancel()
                really(folders)
                steps.append("end")

            monkeypatch.setattr(Store, "keep_file", kept)
            monkeypatch.setattr(Store, "change_file", changed)
            monkeypatch.setattr("oncebus.engine.engine.end_snapshot", end)
            making = asyncio.create_task(stage.broker.snapshots.make())
            with pytest.raises(asyncio.CancelledError):
                await making
        # The broker has waited for it before it closed.
        assert steps == ["keep", "end", "change"]

    asyncio.run(play())


def test_a_full_disk_leaves_no_snapshot_and_the_broker_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: Folders) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def play() -> None:
        async with scene(tmp_path / "data", FakeTime()) as stage:
            await stage.queue("q")
            with monkeypatch.context() as patched:
                patched.setattr("oncebus.engine.engine.end_snapshot", end)
                with pytest.raises(BackupFailed, match=r"^A snapshot cannot be written: No space left on device\.$"):
                    await stage.broker.snapshots.make()
            assert not Folders(tmp_path / "data").snapshot.exists()
            await stage.send("q", "a")
            assert await stage.peeked() == ["a"]
            await stage.broker.snapshots.make()

    asyncio.run(play())


@pytest.mark.parametrize("is_empty", [True, False])
def test_no_folder_is_replaced_and_nothing_is_left_after_an_error(tmp_path: Path, is_empty: bool) -> None:
    target = tmp_path / "copy"
    (tmp_path / "data").mkdir()
    if not is_empty:
        target.mkdir()
    with pytest.raises(BackupFailed, match="has no inbox" if is_empty else "exists already. Give the name of a new"):
        copy_durably(tmp_path / "data", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"] if is_empty else ["copy", "data"]
