"""A snapshot: the data folder of a running broker at one moment, in a folder inside of it.

It is made while the pipeline has nothing to do: then all parts agree. It takes little room, because files that never
change are links. `oncebus.engine.backup` copies it elsewhere, at leisure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from oncebus.engine.folders import Folders
from oncebus.values import disk
from oncebus.values.errors import ErrorKind, OncebusError

_ATTEMPTS = 100
BACKUP_LOCK = "backup.lock"
OWN_FILES = frozenset({"checkpoint", "snapshot", "spark.log", BACKUP_LOCK})
"""What each start or backup makes anew, so that no copy needs it."""


class BackupFailed(OncebusError):
    """A copy of the data folder cannot be made."""

    kind = ErrorKind.BUSY


def begin_snapshot(folders: Folders) -> None:
    """Take the logs, the ledger and the bodies. Replaces an earlier snapshot.

    Nobody may append to the log or publish results meanwhile. The ledger may be tidied, and bodies may be deleted.
    """
    drop_snapshot(folders)
    disk.make_folder(folders.snapshot, mode=0o700)
    # The logs are short when the pipeline has nothing to do. Their files change, so they are copied.
    for part in (folders.inbox, folders.outbox):
        _take_tree(part, folders.snapshot / part.name, shutil.copy2)
    # Files of the ledger replace others, but a body that disappears is not needed by the store, which is taken later.
    _link_tree(folders.ledger, folders.snapshot / folders.ledger.name)
    _take_tree(folders.body_files, folders.snapshot / folders.body_files.name, disk.link)


def end_snapshot(folders: Folders) -> None:
    """Take the rest: the store, whose file nobody may change meanwhile, the catalogue, keys and certificates.

    A catalogue that is newer than the store is what a crash leaves too.
    """
    _link_tree(folders.catalogue, folders.snapshot / folders.catalogue.name)
    for path in folders.data.iterdir():
        is_own = path.name in OWN_FILES or path.name.startswith((".", f"{folders.store.name}-"))
        if path.is_file() and not is_own:
            shutil.copy2(path, folders.snapshot / path.name)


def drop_snapshot(folders: Folders) -> None:
    """Delete the snapshot, if there is one."""
    shutil.rmtree(folders.snapshot, ignore_errors=True)


def _take_tree(source: Path, target: Path, take: Callable[[Path, Path], object]) -> None:
    """Take all files of a folder. One that disappears meanwhile is not needed any more."""
    target.mkdir()
    for name in sorted(_names(source)):
        _take(source / name, target / name, take)


def _take(path: Path, copy: Path, take: Callable[[Path, Path], object]) -> bool:
    """Take a file. Return whether it was still there."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        take(path, copy)
    except FileNotFoundError:
        if path.exists():
            raise
        return False
    return True


def _link_tree(source: Path, target: Path) -> None:
    """Give all files of a folder a second name, as they were at one moment.

    If a file disappears or appears meanwhile, begin again: a listing may lack both a new file and those it replaced.
    """
    for _ in range(_ATTEMPTS):
        target.mkdir()
        names = _names(source)
        if all(_take(source / name, target / name, disk.link) for name in sorted(names)) and _names(source) <= names:
            return
        shutil.rmtree(target)
    raise BackupFailed(f"Folder '{source.name}' changes too often to be copied. Try again later.")


def _names(folder: Path) -> set[Path]:
    """Return the files of a folder and of the folders in it, without unfinished ones."""
    return {
        Path(at, name).relative_to(folder)
        for at, _, names in os.walk(folder)
        for name in names
        if not name.startswith(disk.TEMPORARY)
    }
