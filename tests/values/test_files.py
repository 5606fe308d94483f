from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.broker.broker import Broker
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import BodyFiles, InboxWriter
from oncebus.engine.outbox import Outbox
from oncebus.ledger.storage import storage_at
from oncebus.model.access import KeyFile
from oncebus.model.entities import Catalogue, CatalogueFiles
from oncebus.programs.dedup.outputs import Outputs
from oncebus.values.files import make_folder


def open_broker(folder: Path) -> None:
    async def run() -> None:
        broker = await Broker.open(Folders(folder), shards=2)
        await broker.close()

    asyncio.run(run())


MAKERS: dict[str, Callable[[Path], object]] = {
    "folder": make_folder,
    "data": lambda folder: Folders(folder).make(),
    "broker": open_broker,
    "inbox": lambda folder: InboxWriter.open(folder, 2).close(),
    "bodies": lambda folder: BodyFiles(folder).write(b"body"),
    "outbox": lambda folder: Outbox(folder).begin(),
    "catalogue": lambda folder: CatalogueFiles(folder).publish(Catalogue(version=1)),
    "ledger": lambda folder: storage_at(os.fspath(folder)).publish("name", [b"content"]),
    "output": lambda folder: Outputs([folder]).__enter__().__exit__(None, None, None),
    "keys": lambda folder: KeyFile(folder / "keys.json").create(),
}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the folders that are synced, in order. They are really synced."""
    found: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


@pytest.mark.parametrize("maker", MAKERS)
def test_each_new_folder_is_durable_before_anything_is_put_in_it(tmp_path: Path, synced: list[str], maker: str) -> None:
    MAKERS[maker](tmp_path / "a" / "b" / "c")
    above = [os.fspath(tmp_path), os.fspath(tmp_path / "a"), os.fspath(tmp_path / "a" / "b")]
    assert synced[:3] == above


def test_every_folder_of_a_broker_is_synced_in_its_parent(tmp_path: Path, synced: list[str]) -> None:
    open_broker(tmp_path / "data")
    made = {os.path.dirname(path) for path, _, _ in os.walk(tmp_path / "data")}
    assert made <= set(synced)


def test_an_existing_folder_is_left_alone(tmp_path: Path, synced: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o750)
    make_folder(folder, mode=0o700)
    assert (folder.stat().st_mode & 0o777, synced) == (0o750, [])


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        make_folder(tmp_path / "file" / "folder")
    assert (tmp_path / "file").read_text() == "mine"
