"""What has to be there before anything is started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from oncebus.errors import OncebusError
from oncebus.folders import Folders

# The mode of the data folder, and of what is written there. With "anyone" both are the user's own to set.
_BITS = {"owner": 0o700, "group": 0o770}
_WIDER = {"owner": ("group", "anyone"), "group": ("anyone",)}


class CannotServe(OncebusError):
    """Something that the broker needs is missing."""


def check_java() -> None:
    """Refuse to start where there is no Java at all. One that is too old is for Spark to refuse."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        where = f"JAVA_HOME is '{home}'" if home else "no 'java' is on the PATH"
        raise CannotServe(f"Spark needs Java 17 or later, but {where}. Install it, or set JAVA_HOME.")


def make_data_folder(data: Path, access: str = "owner") -> None:
    """Make the folder, and see to it that what this process writes there is for its owner, its group or anyone.

    Sets the umask of the process. A folder that is there and empty is closed to other users. Raises `CannotServe` for
    one that cannot be written, and for one that more users can enter than `access` says.
    """
    own = _BITS.get(access)
    if own is not None:
        os.umask(0o777 & ~own)
    try:
        is_new = not data.exists()
        Folders(data).make()
        # `mkdir` opens a folder to everyone; whoever opens one to a group alone has done that on purpose.
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


@contextlib.contextmanager
def alone(data: Path) -> Iterator[None]:
    """Hold the folder against a second service, for as long as this process lives. Raises `CannotServe`."""
    busy = f"Another broker runs over data folder '{data}'. Stop it first, or give another with --data."
    with _held(data / "serve.lock", busy):
        yield


@contextlib.contextmanager
def stopped(data: Path) -> Iterator[None]:
    """Hold the folder against `serve` and `pipeline` for a block. Raises `CannotServe` where one of them runs."""
    if not data.is_dir():
        raise CannotServe(f"There is no data folder '{data}'. Give the broker's with --data.")
    with (
        _held(data / "serve.lock", f"A broker runs over data folder '{data}'. Stop it first."),
        _held(data / "pipeline.lock", f"A pipeline runs over data folder '{data}'. Stop it first."),
    ):
        yield


@contextlib.contextmanager
def _held(lock: Path, busy: str) -> Iterator[None]:
    with lock.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotServe(busy) from error
        yield
