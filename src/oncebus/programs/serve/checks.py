"""Checks before a start: Java is installed, the data folder is usable and private, and no other broker uses it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from oncebus.engine.folders import Folders
from oncebus.engine.snapshot import BACKUP_LOCK
from oncebus.values.errors import OncebusError

# The mode of the data folder and its files. With "anyone", the user's umask and chmod decide.
_BITS = {"owner": 0o700, "group": 0o770}
_WIDER = {"owner": ("group", "anyone"), "group": ("anyone",)}

LOCK = "serve.lock"
LOOK_SECONDS = 0.1
LEFTOVER_SECONDS = 10.0
"""How long to wait for the gateway of a `serve` that was killed."""


class CannotServe(OncebusError):
    """The broker cannot start, because something that it needs is missing or in use."""


def check_java() -> None:
    """Raise `CannotServe` if there is no Java. Spark itself refuses a Java that is too old."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        where = f"JAVA_HOME is '{home}'" if home else "no 'java' is on the PATH"
        raise CannotServe(f"Spark needs Java 17 or later, but {where}. Install it, or set JAVA_HOME.")


def make_data_folder(data: Path, access: str = "owner") -> None:
    """Create the data folder, and restrict it and all files that this process writes to the owner, the group or anyone.

    Sets the umask of the process. Closes an existing empty folder to other users. Raises `CannotServe` if the folder
    cannot be written, or if it is open to more users than `access` allows.
    """
    own = _BITS.get(access)
    if own is not None:
        os.umask(0o777 & ~own)
    try:
        is_new = not data.exists()
        Folders(data).make()
        # A plain `mkdir` opens a folder to everyone. A folder that is open only to a group was opened on purpose.
        is_open = stat.S_IMODE(data.stat().st_mode) & 0o007 != 0
        if own is not None and (is_new or (is_open and not any(data.iterdir()))):
            data.chmod(own)
        probe = data / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
        mode = stat.S_IMODE(data.stat().st_mode)
    except OSError as error:
        raise CannotServe(f"Data folder '{data}' cannot be written: {error.strerror}.") from error
    if own is not None and mode & ~own & 0o077:
        raise CannotServe(
            f"Data folder '{data}' has mode {mode:04o}: other users could read messages and keys. "
            f"Run chmod {own:o} '{data}', or set 'data_access' to {' or '.join(_WIDER[access])}."
        )


@contextlib.asynccontextmanager
async def alone(data: Path, *, passed: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """Lock the folder against a second `serve` while the block runs. Raises `CannotServe` if one is already running.

    The gateway of a `serve` that was killed ends by itself within a second, and a new one would give up before that. So
    this waits for it. A new pipeline waits for the old one by itself.
    """
    busy = f"Another broker uses data folder '{data}'. Stop it first, or choose another folder with --data."
    with _locked_file(data / LOCK, busy):
        until = passed() + LEFTOVER_SECONDS
        while not _is_free(gateway := Folders(data).gateway_lock):
            if passed() >= until:
                raise CannotServe(f"Another process has locked '{gateway}'. Stop it first.")
            await asyncio.sleep(LOOK_SECONDS)
        yield


async def wait_as_standby(data: Path, waiting: Callable[[str], None]) -> None:
    """Return when there is a broker's data folder that nobody uses. Calls `waiting` once with what it waits for.

    Never creates anything: the folder may be on a volume that another machine still has.
    """
    while why := _reason_to_wait(data):
        waiting(why)
        waiting = _ignore
        await asyncio.sleep(LOOK_SECONDS)


def _reason_to_wait(data: Path) -> str | None:
    folders = Folders(data)
    if not folders.store.exists():
        return f"there is no broker's data in '{data}' yet"
    if not all(map(_is_free, (data / LOCK, folders.gateway_lock))):
        return f"another broker uses data folder '{data}'"
    return None


def _ignore(why: str) -> None:
    """Do nothing: the first reason has been reported."""


@contextlib.contextmanager
def while_stopped(data: Path) -> Iterator[None]:
    """Lock the folder against `serve`, `gateway` and `pipeline` for a block. Raises `CannotServe` if one of them runs.

    The lock of `gateway` belongs to the inbox, which the block may want to open. So it is only looked at.
    """
    need_data_folder(data)
    folders = Folders(data)
    with (
        _locked_file(data / LOCK, f"A broker uses data folder '{data}'. Stop it first."),
        _locked_file(folders.pipeline_lock, f"A pipeline uses data folder '{data}'. Stop it first."),
    ):
        if not _is_free(folders.gateway_lock):
            raise CannotServe(f"A gateway uses data folder '{data}'. Stop it first.")
        yield


@contextlib.contextmanager
def only_backup(data: Path) -> Iterator[None]:
    """Keep other backups of the folder away for a block: each replaces the snapshot of the one before."""
    need_data_folder(data)
    with _locked_file(data / BACKUP_LOCK, f"Another backup of data folder '{data}' runs. Wait until it has ended."):
        yield


def need_data_folder(data: Path) -> None:
    """Raise `CannotServe` if there is no data folder."""
    if not data.is_dir():
        raise CannotServe(f"There is no data folder '{data}'. Give the broker's data folder with --data.")


@contextlib.contextmanager
def _locked_file(lock: Path, busy: str, mode: str = "ab") -> Iterator[None]:
    with lock.open(mode) as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotServe(busy) from error
        yield


def _is_free(lock: Path) -> bool:
    """Return whether no process has locked a file. It need not exist."""
    try:
        with _locked_file(lock, "", mode="rb"):
            return True
    except FileNotFoundError:
        return True
    except CannotServe:
        return False
