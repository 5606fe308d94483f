"""Files that appear at once, whole and durably, and the folders that they lie in."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TEMPORARY = ".tmp-"


def publish(
    folder: str,
    name: str,
    pieces: Sequence[bytes | memoryview | pa.Buffer],
    *,
    aside: str | None = None,
    before: Callable[[], object] | None = None,
) -> None:
    """Write a file, replacing one of that name. When this returns it survives any crash; before, it is not there.

    It is written in the folder `aside` first, of the same file system; in its own unless given. `before` is called
    when it is on the disk, before it appears: where that raises, it does not. Raises `OSError` and leaves nothing
    behind, unless the process dies: see `delete_abandoned`.
    """
    temporary = os.path.join(folder if aside is None else aside, TEMPORARY + uuid.uuid4().hex)
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            before()
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make it durable which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Make a folder and those above it that are missing. When this returns, all that were made survive any crash.

    `mode` is that of the folder itself. A folder that is there stays as it is. Files that are synced in a folder are
    lost with it if the folder above was not synced after it was made, so durable folders are made here only.
    """
    path = os.path.abspath(folder)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each, mode if each is missing[0] else 0o777)
        except FileExistsError:
            # Another process may have made it just now, and not have synced it yet.
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from None
        sync_folder(os.path.dirname(each))


def map_file(path: str) -> pa.Buffer:
    """The file as it is now, memory-mapped. Keeps no descriptor open, as Python's own map would."""
    # Here, because who only writes small files should not load Arrow.
    import pyarrow as pa

    with pa.memory_map(path) as file:
        # Nothing can be mapped of an empty file.
        return file.read_buffer() if file.size() else pa.py_buffer(b"")


def delete_abandoned(folder: str, before: int) -> list[str]:
    """Delete unfinished files last written before a time, in microseconds since 1970: their writer died."""
    deleted = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY) and modified(entry) < before:
                Path(entry.path).unlink(missing_ok=True)
                deleted.append(entry.name)
    return deleted


def modified(entry: os.DirEntry[str]) -> int:
    """When a file was last written, in microseconds since 1970; 0 if it is gone."""
    try:
        return entry.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return 0
