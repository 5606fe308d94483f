"""Who may use a data folder: one `serve` at a time, and a standby after it."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.snapshot import BACKUP_LOCK
from oncebus.programs.cli import main
from oncebus.programs.serve.checks import LOCK, CannotServe, alone, only_backup, wait_as_standby


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that a broker has used."""
    folders = Folders(tmp_path / "data")
    Engine.files(folders, 2).close()
    return folders.data


async def enter(data: Path, seconds: float = 0.0) -> None:
    """Lock the folder for a moment, on a clock that shows this time from the second look on."""
    times = iter([0.0])
    async with alone(data, passed=lambda: next(times, seconds)):
        pass


def test_a_second_serve_is_refused(data: Path) -> None:
    with (
        locked(data / LOCK),
        pytest.raises(CannotServe, match=f"Another broker uses data folder '{data}'. Stop it first"),
    ):
        asyncio.run(enter(data))


def test_the_rest_of_a_killed_serve_may_end_first(data: Path) -> None:
    async def scene() -> None:
        with locked(Folders(data).gateway_lock):
            entering = asyncio.create_task(enter(data))
            await asyncio.sleep(0)
            assert not entering.done()
        await entering

    asyncio.run(scene())


def test_a_gateway_that_does_not_end_is_named(data: Path) -> None:
    lock = Folders(data).gateway_lock
    with locked(lock), pytest.raises(CannotServe, match=f"^Another process has locked '{lock}'"):
        asyncio.run(enter(data, seconds=10.0))


def test_a_pipeline_is_not_waited_for(data: Path) -> None:
    with locked(Folders(data).pipeline_lock):
        asyncio.run(enter(data, seconds=10.0))


def test_a_standby_waits_for_data_and_for_serve_and_gateway(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "data")
    data, told = folders.data, list[str]()

    async def scene() -> None:
        waiting = asyncio.create_task(wait_as_standby(data, told.append))
        await asyncio.sleep(0)
        assert told == [f"there is no broker's data in '{data}' yet"]
        assert not data.exists()
        waiting.cancel()
        Engine.files(folders, 2).close()
        for lock in (data / LOCK, folders.gateway_lock):
            told.clear()
            with locked(lock):
                waiting = asyncio.create_task(wait_as_standby(data, told.append))
                await asyncio.sleep(0)
                assert told == [f"another broker uses data folder '{data}'"]
            await waiting
        told.clear()
        await wait_as_standby(data, told.append)
        assert not told

    asyncio.run(scene())


def test_a_second_backup_waits_for_its_turn(data: Path, tmp_path: Path) -> None:
    words = ["backup", str(tmp_path / "copy"), "--data", str(data)]
    with only_backup(data):
        said = CliRunner().invoke(main, words).output
    assert f"Another backup of data folder '{data}' runs. Wait until it has ended." in said
    assert CliRunner().invoke(main, words).output.startswith("Copied ")
    assert not (tmp_path / "copy" / BACKUP_LOCK).exists()
