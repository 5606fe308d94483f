"""A snapshot: the data folder of a running broker at one moment, in a folder inside of it.

It is made while the pipeline has nothing to do: then all parts agree. It takes little room, because files that never
change are links. `oncebus.engine.backup` copies it elsewhere, at leisure.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from oncebus.engine.folders import Folders
from oncebus.values import disk
from oncebus.values.errors import OncebusError

_ATTEMPTS = 100
OWN_FILES = frozenset({"checkpoint", "snapshot", "spark.log"})
"""What each start makes anew, so that no copy needs it."""


class BackupFailed(OncebusError):
    """A copy of the data folder cannot be made."""


def begin_snapshot(folders: Folders) -> None:
    """Take the logs, the ledger and the bodies. Replaces an earlier snapshot.

    Nobody may append to the log or publish results meanwhile. The ledger may be tidied, and bodies may be deleted.
    """
    drop_snapshot(folders)
    disk.make_folder(folders.snapshot, mode=0o700)
    # The logs are short when the pipeline has nothing to do. Their files change, so they are copied.
    for part in (folders.inbox, folders.outbox):
        _copy_tree(part, folders.snapshot / part.name)
    for part in (folders.ledger, folders.body_files):
        _link_tree(part, folders.snapshot / part.name)


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


def _copy_file(source: Path, target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    return target.stat().st_size


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a folder. A file that disappears meanwhile is not needed any more."""
    target.mkdir()
    for path in source.rglob("*"):
        if path.is_file():
            try:
                _copy_file(path, target / path.relative_to(source))
            except FileNotFoundError:
                if path.exists():
                    raise


def _link_tree(source: Path, target: Path) -> None:
    """Give all files of a folder a second name, as they were at one moment: if one disappears, begin again."""
    for _ in range(_ATTEMPTS):
        target.mkdir()
        try:
            for path in sorted(source.rglob("*")):
                if path.is_dir():
                    continue
                (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                disk.link(path, target / path.relative_to(source))
        except FileNotFoundError:
            shutil.rmtree(target)
            continue
        return
    raise BackupFailed(f"Folder '{source}' changes too often to be copied. Try again later.")
