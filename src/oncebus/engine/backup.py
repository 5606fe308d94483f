"""Copies the data folder of a stopped broker, or the snapshot of a running one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from oncebus.engine.agreement import check_no_repair
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxReader
from oncebus.engine.snapshot import OWN_FILES, BackupFailed
from oncebus.values import disk


def copy_durably(source: Path, target: Path) -> int:
    """Copy a snapshot, or the folder of a stopped broker. Return the number of bytes.

    The copy appears under its name when it is whole, durable, and was opened as a broker would open it. Raises
    `BackupFailed` if the target exists, or the error that a broker would raise.
    """
    if target.exists():
        raise BackupFailed(f"'{target}' exists already. Give the name of a new folder.")
    check_no_repair(Folders(source))
    unfinished = target.parent / f"{disk.TEMPORARY}{target.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        disk.make_folder(unfinished, mode=0o700)
        size = 0
        for path in _files(source):
            copy = unfinished / path.relative_to(source)
            disk.make_folder(copy.parent)
            shutil.copy2(path, copy)
            size += copy.stat().st_size
        _open_once(Folders(unfinished))
        for folder, _, names in os.walk(unfinished):
            for each in (*(os.path.join(folder, name) for name in names), folder):
                disk.sync(each)
        disk.replace(unfinished, target)
        disk.sync(target.parent)
    except OSError as error:
        raise BackupFailed(f"'{target}' cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return size


def _open_once(folders: Folders) -> None:
    """Raise what a broker would raise that starts on this copy."""
    shards = InboxReader(folders.inbox).shards()
    if shards is None:
        raise BackupFailed(f"'{folders.data}' has no inbox, so it is not the data of a broker.")
    Engine.files(folders, shards).close()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a data folder, except what a new start makes anew."""
    for path in sorted(folder.rglob("*")):
        top = path.relative_to(folder).parts[0]
        if path.is_file() and top not in OWN_FILES and not top.startswith("."):
            yield path
