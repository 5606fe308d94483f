"""Waiting for changes of a folder: the kernel reports them, or the watch polls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from oncebus.values import watching
from oncebus.values.watching import Watch, sign

LONG = 60.0


def rename_into(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder.parent / "draft").write_bytes(b"x")
    (folder.parent / "draft").rename(folder / "part")


def overwrite(folder: Path) -> None:
    with (folder / "note").open("r+b") as file:
        file.write(b"y")


def replace(folder: Path) -> None:
    (folder.parent / "draft").write_bytes(b"z")
    (folder.parent / "draft").rename(folder / "note")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "watched"
    made.mkdir()
    (made / "note").write_bytes(b"x")
    sign(tmp_path / "signature")
    return made


def watch(folder: Path) -> Watch:
    return Watch(folder, folder.parent / "signature", overwritten="note")


@pytest.mark.parametrize("change", [rename_into, overwrite, replace])
def test_a_change_since_the_last_wait_ends_the_next_one(folder: Path, change: Callable[[Path], None]) -> None:
    watched = watch(folder)
    for _ in range(3):
        change(folder)
        # Check only that the wait ends: the kernel has queued the event.
        watched.wait(LONG)
    change(folder)
    asyncio.run(watched.wait_in_loop(LONG))


def test_a_change_wakes_those_who_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only for the module: threads of other tests may sleep.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("the watch polls"))
    monkeypatch.setattr(watching, "time", clock)
    watched = watch(folder)
    timer = threading.Timer(0.05, overwrite, [folder])
    timer.start()
    watched.wait(LONG)
    assert (folder / "note").read_bytes() == b"y"
    timer.join()


def test_without_a_change_the_wait_ends_in_time(folder: Path) -> None:
    watched = watch(folder)
    watched.wait(0.01)
    watched.wait(-1.0)
    asyncio.run(watched.wait_in_loop(0.01))


def signed_elsewhere(folder: Path) -> None:
    (folder.parent / "signature").write_text("another kernel")


def signed_for_many_machines(folder: Path) -> None:
    sign(folder.parent / "signature", is_local=False)


def unsigned(folder: Path) -> None:
    (folder.parent / "signature").unlink()


def signed_with_rubbish(folder: Path) -> None:
    (folder.parent / "signature").write_bytes(b"\xff")


def gone(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")


@pytest.mark.parametrize("situation", [signed_elsewhere, signed_for_many_machines, unsigned, signed_with_rubbish, gone])
def test_the_wait_is_short_if_the_kernel_does_not_report(folder: Path, situation: Callable[[Path], None]) -> None:
    situation(folder)
    watched = watch(folder)
    began = time.monotonic()
    watched.wait(LONG)
    asyncio.run(watched.wait_in_loop(LONG))
    assert time.monotonic() - began < LONG


def test_without_inotify_the_wait_is_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_new_descriptor", lambda: None)
    watched = watch(folder)
    watched.wait(LONG)
    asyncio.run(watched.wait_in_loop(LONG))
    watched.close()


def test_a_folder_that_is_created_later_or_again_is_watched(folder: Path) -> None:
    watched = watch(folder)
    gone(folder)
    watched.wait(0.01)
    folder.mkdir()
    (folder / "note").write_bytes(b"x")
    watched.wait(LONG)
    overwrite(folder)
    watched.wait(LONG)
    rename_into(folder)
    watched.wait(LONG)


def test_a_closed_watch_keeps_no_descriptor_open(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    watched = watch(folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    watched.close()
    watched.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
