"""Writes files atomically and durably, and creates the folders that contain them."""

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
    """Write a file atomically, replacing any existing file of that name.

    Once this returns, the file survives any crash.

    The data is first written to a temporary file in the folder `aside`, or in `folder` if that is None. Both must be on
    the same file system. `before` is called when the data is on the disk, before the file appears; if it raises, the
    file does not appear. After an `OSError`, the temporary file is deleted. Only a process that dies leaves it behind:
    see `delete_abandoned`.
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
    """Make the list of files in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Create a folder and its missing parents. Once this returns, all of them survive any crash.

    `mode` applies to the folder itself. An existing folder is not changed. Always create durable folders with this
    function: if the parent is not synced after a folder is created, a crash loses the folder, even with synced files.
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
            # Another process may have created it just now without syncing it yet, so go on and sync the parent.
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from None
        sync_folder(os.path.dirname(each))


def map_file(path: str) -> pa.Buffer:
    """Return the current content of a file, memory-mapped. Unlike Python's mmap, this keeps no descriptor open."""
    # Imported here because modules that only write small files should not load Arrow.
    import pyarrow as pa

    with pa.memory_map(path) as file:
        # An empty file cannot be mapped.
        return file.read_buffer() if file.size() else pa.py_buffer(b"")


def delete_abandoned(folder: str, before: int) -> list[str]:
    """Delete temporary files whose writer died, and return their names.

    A temporary file counts as abandoned if it was last written before `before`, in microseconds since 1970.
    """
    deleted = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY) and modified(entry) < before:
                Path(entry.path).unlink(missing_ok=True)
                deleted.append(entry.name)
    return deleted


def modified(entry: os.DirEntry[str]) -> int:
    """Return when a file was last written, in microseconds since 1970; 0 if it no longer exists."""
    try:
        return entry.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return 0
