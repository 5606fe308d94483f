from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.access import KeyFile
from oncebus.broker.core import Core
from oncebus.folders import Folders
from oncebus.serve.certificate import own_certificate
from oncebus.serve.checks import make_data_folder

NOW = 1_790_000_000_000_000


def open_and_close(data: Path) -> None:
    async def run() -> None:
        core = await Core.open(Folders(data), shards=2)
        await core.close()

    asyncio.run(run())


MAKERS: dict[str, Callable[[Path], object]] = {
    "check": make_data_folder,
    "broker": open_and_close,
    "keys": lambda data: KeyFile(data / "keys.json").create(),
    "certificate": lambda data: own_certificate(data, "127.0.0.1", NOW),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_data_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path, maker: str) -> None:
    before = os.umask(0o022)
    try:
        MAKERS[maker](tmp_path / "new" / "data")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "data").stat().st_mode & 0o777 == 0o700


def test_a_data_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o770)
    make_data_folder(tmp_path / "data")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o770
