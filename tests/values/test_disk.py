"""The disk: the only module that changes files durably; folders that survive a crash."""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import oncebus
from oncebus.broker.broker import Broker
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import BodyFiles, InboxWriter
from oncebus.engine.outbox import Outbox
from oncebus.ledger.storage import storage_at
from oncebus.model.access import KeyFile
from oncebus.model.entities import Catalogue, CatalogueFiles
from oncebus.programs.dedup.outputs import Outputs
from oncebus.values import disk


def open_broker(folder: Path) -> None:
    async def run() -> None:
        broker = await Broker.open(Engine.files(Folders(folder), 2))
        await broker.close()

    asyncio.run(run())


MAKERS: dict[str, Callable[[Path], object]] = {
    "folder": disk.make_folder,
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
    disk.make_folder(folder, mode=0o700)
    assert (folder.stat().st_mode & 0o777, synced) == (0o750, [])


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        disk.make_folder(tmp_path / "file" / "folder")
    assert (tmp_path / "file").read_text() == "mine"


SOURCE = Path(oncebus.__file__).parent
CHANGES = {"fsync", "fdatasync", "replace", "rename", "link", "symlink", "unlink", "remove", "rmdir", "mkdir"}
OF_PATHS = {"unlink", "rmdir", "mkdir", "touch", "write_text", "write_bytes", "hardlink_to", "symlink_to"}
WRITES = {"write", "pwrite", "writev", "pwritev", "ftruncate", "truncate", "write_text", "write_bytes", "touch"}
NOT_DURABLE = {
    "doctor/trial.py": "scratch files of a trial",
    "engine/inbox/writer.py": "the lock",
    "engine/snapshot.py": "what the next snapshot replaces",
    "ledger/copies.py": "a cache, which each boot of the machine begins anew",
    "model/access/keys.py": "the lock",
    "pipeline/jvm.py": "a cache",
    "pipeline/process.py": "the lock",
    "connector/spool.py": "the lock",
    "programs/cli/deploy.py": "a file for the user",
    "programs/cli/gateway.py": "a pipe",
    "programs/dedup/outputs.py": "folders that this run has created and nobody has used",
    "programs/serve/addresses.py": "notes that the next start writes again",
    "programs/serve/checks.py": "a probe, and the lock",
    "programs/serve/warm_up.py": "logs",
    "spark/starting.py": "a log",
    "testing/pipelines.py": "a log",
    "values/watching.py": "a note that only lets others wait without polling",
}
"""Modules that write by hand what a crash may lose."""
NEVER = {"fsync", "fdatasync", "replace", "rename", "link"}
"""Not even in those."""


def hand_written(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each call that changes files."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            yield from (each.name for each in node.names if each.name in CHANGES | WRITES)
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        texts = [str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)]
        if owner == "os":
            flags = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            if name in CHANGES | WRITES or (name == "open" and "O_RDONLY" not in flags):
                yield name
        elif owner != "disk" and (
            (name == "open" and any(set(each) & set("wax+") and set(each) <= set("wax+rbt") for each in texts))
            # `replace` of a text has two arguments, that of a time has keywords.
            or (owner and name in {"replace", "rename"} and len(node.args) == 1 and not node.keywords)
            or name in OF_PATHS
        ):
            yield name


def test_only_the_disk_changes_files_durably() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if uses := set(hand_written(ast.parse(path.read_text()))):
            found[str(path.relative_to(SOURCE))] = uses
    del found["values/disk.py"]
    assert {module: uses & NEVER for module, uses in found.items() if uses & NEVER} == {}
    assert {module: uses for module, uses in found.items() if module not in NOT_DURABLE} == {}
    assert NOT_DURABLE.keys() == found.keys()


def test_the_check_finds_what_is_written_by_hand() -> None:
    hidden = """
from os import fsync
os.fdatasync(1)
os.open(path, os.O_RDWR)
open(path, "wb")
path.open(mode="a")
path.rename(other)
path.replace(other)
path.unlink(missing_ok=True)
path.write_bytes(data)
text.replace("a", "b")
time.replace(tzinfo=None)
os.open(path, os.O_RDONLY)
open(path, "rb")
disk.replace(one, two)
"""
    assert list(hand_written(ast.parse(hidden))) == [
        "fsync", "fdatasync", "open", "open", "open", "rename", "replace", "unlink", "write_bytes",
    ]  # fmt: skip
