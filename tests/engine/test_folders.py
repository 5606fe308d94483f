from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncebus.broker.broker import Broker
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import KeyFile
from oncebus.programs.serve.certificate import own_certificate
from oncebus.programs.serve.checks import CannotServe, make_data_folder

NOW = 1_790_000_000_000_000


def open_and_close(data: Path) -> None:
    async def run() -> None:
        broker = await Broker.open(Engine.files(Folders(data), 2))
        await broker.close()

    asyncio.run(run())


MAKERS: dict[str, Callable[[Path], object]] = {
    "check": make_data_folder,
    "broker": open_and_close,
    "keys": lambda data: KeyFile(data / "keys.json").create(),
    "certificate": lambda data: own_certificate(data, "127.0.0.1", NOW),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_new_data_folder_is_accessible_to_its_owner_only(tmp_path: Path, maker: str) -> None:
    before = os.umask(0o022)
    try:
        MAKERS[maker](tmp_path / "new" / "data")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "data").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    folder.mkdir()
    before = os.umask(0o022)
    yield folder
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(("access", "folder", "file"), [("owner", 0o700, 0o600), ("group", 0o770, 0o660)])
def test_an_empty_folder_is_closed_to_others_with_its_files(data: Path, access: str, folder: int, file: int) -> None:
    data.chmod(0o755)
    make_data_folder(data, access)
    (data / "file").touch()
    assert (mode(data), mode(data / "file")) == (folder, file)


def test_a_folder_with_data_that_others_can_enter_is_refused(data: Path) -> None:
    (data / "keys.json").touch()
    for wrong, access, way_out in (
        (0o755, "owner", "group or anyone"),
        (0o770, "owner", "group or anyone"),
        (0o775, "group", "anyone"),
    ):
        data.chmod(wrong)
        with pytest.raises(CannotServe) as refused:
            make_data_folder(data, access)
        right = {"owner": 700, "group": 770}[access]
        assert str(refused.value) == (
            f"Data folder '{data}' has mode {wrong:04o}: other users could read messages and keys. "
            f"Run chmod {right} '{data}', or set 'data_access' to {way_out}."
        )
        assert mode(data) == wrong


def test_a_folder_for_a_group_or_anyone_keeps_its_mode(data: Path) -> None:
    for wanted, access in ((0o770, "group"), (0o750, "group"), (0o777, "anyone")):
        data.chmod(wanted)
        make_data_folder(data, access)
        assert mode(data) == wanted
