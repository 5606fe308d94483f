"""Tries what a ledger needs from its place, with temporary files that are deleted again.

The names of these files begin with `.tmp-`. A ledger ignores such files, and deletes them an hour later if this process
dies before it could.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from oncebus.doctor.clocks import Offset
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Storage, StorageError, storage_at
from oncebus.values import disk

VISIBLE_SECONDS = 5.0
"""How long to wait for a file of another machine. A ledger itself does not wait: it must find files at once."""

_POLL_SECONDS = 0.1
_STORE_CLOCK_SECONDS = 1.0
"""Object stores report times in whole seconds."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one machine found when it tried the place. `step` and `problem` describe the first step that failed.

    `low` and `high` are the bounds of the storage's clock, beside that of the machine. `seconds` is the time that it
    took to write, sync and rename a file.
    """

    step: str = ""
    problem: str = ""
    low: float = 0.0
    high: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether one machine sees a file of another. `seconds` is the time until it did; 0 means at once."""

    is_seen: bool
    seconds: float = 0.0
    problem: str = ""


def new_name() -> str:
    """Return a name for a temporary file."""
    return f"{disk.TEMPORARY}doctor-{uuid.uuid4().hex}"


def open_place(location: str) -> list[str]:
    """Create the folder of a ledger if it is missing. Return the folders that were created. Raises `StorageError`.

    An object store has no folders.
    """
    storage = storage_at(location)
    missing: list[str] = []
    if isinstance(storage, LocalStorage):
        path = storage.location
        while not os.path.lexists(path):
            missing.append(path)
            path = os.path.dirname(path)
        try:
            disk.make_folder(storage.location)
        except OSError as error:
            _remove(missing)
            raise StorageError(f"Ledger folder '{storage.location}' cannot be created: {error.strerror}") from error
    return missing


def close_place(location: str, names: Iterable[str], made: Iterable[str]) -> None:
    """Delete files, and folders that `open_place` created unless something else is in them now."""
    with suppress(StorageError, OSError):
        storage_at(location).delete(names)
    _remove(made)


def try_place(location: str) -> Trial:
    """Publish, replace, claim and delete files as a ledger does, and return the first problem."""
    storage = storage_at(location)
    name, claim = new_name(), new_name()
    step, low, high, seconds = "write", 0.0, 0.0, 0.0
    try:
        try:
            started, before = time.monotonic(), time.time()
            storage.publish(name, [b"one"])
            seconds, after = time.monotonic() - started, time.time()
            modified, resolution = _time_written(storage, name)
            offset = Offset.measure(before, modified, after, resolution)
            low, high = offset.low, offset.high
            step = "read"
            _expect(storage, name, b"one")
            step = "replace"
            storage.publish(name, [b"two"])
            _expect(storage, name, b"two")
            step = "claim"
            if not storage.publish_new(claim, [b"one"]):
                raise StorageError(f"a new name, '{claim}', counts as taken")
            if storage.publish_new(claim, [b"two"]):
                raise StorageError("a second claim of the same name succeeded")
            _expect(storage, claim, b"one")
        finally:
            with suppress(StorageError, OSError):
                storage.delete([name, claim])
        step = "delete"
        if not _list_names(storage).isdisjoint([name, claim]):
            raise StorageError("deleted files are still listed")
    except (StorageError, OSError) as error:
        return Trial(step, str(error), low, high, seconds)
    return Trial("", "", low, high, seconds)


def list_place(location: str) -> None:
    """List the folder once, so that a mount that caches listings has cached it."""
    with suppress(StorageError, OSError):
        _list_names(storage_at(location))


def look_for(location: str, name: str, content: bytes, patience: float = VISIBLE_SECONDS) -> Sight:
    """Return whether this machine sees a file, by listing the folder and reading the file."""
    started = time.monotonic()
    waited = 0.0
    while True:
        try:
            storage = storage_at(location)
            if name in _list_names(storage):
                is_same = bytes(storage.read(name)) == content
                storage.forget(name)
                if is_same:
                    return Sight(True, waited)
        except FileNotFoundError:
            pass
        except (StorageError, OSError) as error:
            return Sight(False, waited, str(error))
        waited = time.monotonic() - started
        if waited > patience:
            return Sight(False, waited)
        time.sleep(_POLL_SECONDS)


def leave(location: str, name: str, content: bytes) -> None:
    """Write a file for another machine to find. Raises `StorageError`."""
    storage_at(location).publish(name, [content])


def _expect(storage: Storage, name: str, content: bytes) -> None:
    found = bytes(storage.read(name))
    if found != content:
        raise StorageError(f"a file that holds {content!r} reads as {found[:20]!r}")


def _list_names(storage: Storage) -> set[str]:
    # `names` of a local ledger leaves out temporary files.
    return set(os.listdir(storage.location) if isinstance(storage, LocalStorage) else storage.names())


def _time_written(storage: Storage, name: str) -> tuple[float, float]:
    """Return the time at which the storage says that a file was written, and the resolution of that time."""
    if isinstance(storage, LocalStorage):
        return os.stat(os.path.join(storage.location, name)).st_mtime, 0.0
    found = storage.names().get(name)
    if found is None:
        raise StorageError(f"a new file, '{name}', is not listed")
    return found.modified_ns / 1e9, _STORE_CLOCK_SECONDS


def _remove(folders: Iterable[str]) -> None:
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
