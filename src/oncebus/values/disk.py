"""Everything that changes files durably: the only module that syncs, renames or links.

Call these functions as attributes of the module (`disk.sync_data(…)`). The ones in the first part are the only calls of
the operating system, so a simulated disk replaces just those, here, for the whole process.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    Piece: TypeAlias = bytes | memoryview | pa.Buffer

TEMPORARY = ".tmp-"
PRIVATE = 0o600

StrPath = str | os.PathLike[str]


def create(path: StrPath, pieces: Sequence[Piece], mode: int = 0o666) -> None:
    """Create a file with this content, and sync the content. Raises `FileExistsError` rather than change a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(descriptor)


def open_file(path: StrPath) -> int:
    """Return a descriptor of an existing file, for the three functions below. Close it with `os.close`."""
    return os.open(path, os.O_RDWR)


def write(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at an offset. It is not durable yet."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]
        offset += written


def truncate(descriptor: int, size: int) -> None:
    """Drop what follows the first `size` bytes of a file, durably, together with everything written before."""
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Make the content of a file durable."""
    os.fdatasync(descriptor)


def replace(path: StrPath, target: StrPath) -> None:
    """Rename a file or folder, replacing any file of the new name. Durable once the folder is synced."""
    os.replace(path, target)


def link(path: StrPath, target: StrPath) -> None:
    """Give a file a second name. Raises `FileExistsError` if it is taken. Durable once the folder is synced."""
    os.link(path, target)


def delete(path: StrPath) -> None:
    """Delete a file if it exists. After a crash it may be back, unless its folder is synced."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def delete_folder(path: StrPath) -> None:
    """Delete an empty folder. After a crash it may be back, unless its parent is synced."""
    os.rmdir(path)


def sync(path: StrPath) -> None:
    """Make the list of files in a folder durable, or the content of one file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def add_folder(path: StrPath, mode: int) -> None:
    """Create one folder. Durable once its parent is synced."""
    os.mkdir(path, mode)


# The rest is made of the functions above.


def publish(
    folder: StrPath,
    name: str,
    pieces: Sequence[Piece],
    *,
    mode: int = 0o666,
    aside: StrPath | None = None,
    before: Callable[[], object] | None = None,
) -> None:
    """Write a file atomically, replacing any existing file of that name.

    Once this returns, the file survives any crash.

    The data is first written to a temporary file in the folder `aside`, or in `folder` if that is None. Both must be on
    the same file system. `before` is called when the data is on the disk, before the file appears; if it raises, the
    file does not appear. After an error, the temporary file is deleted. Only a process that dies leaves it behind: see
    `delete_abandoned`.
    """
    temporary = os.path.join(folder if aside is None else aside, TEMPORARY + uuid.uuid4().hex)
    try:
        create(temporary, pieces, mode)
        if before is not None:
            before()
        replace(temporary, os.path.join(folder, name))
    except BaseException:
        delete(temporary)
        raise
    sync(folder)


def publish_new(folder: StrPath, name: str, pieces: Sequence[Piece], *, mode: int = 0o666) -> bool:
    """Write a file like `publish`, unless the name is taken. Return whether it was free.

    Exactly one of several callers gets True, even if all write the same content.
    """
    temporary = os.path.join(folder, TEMPORARY + uuid.uuid4().hex)
    try:
        create(temporary, pieces, mode)
        # Unlike a rename, a link never replaces a file that another process has created meanwhile.
        link(temporary, os.path.join(folder, name))
        is_free = True
    except FileExistsError:
        is_free = False
    finally:
        delete(temporary)
    sync(folder)
    return is_free


def make_folder(folder: StrPath, mode: int = 0o777) -> None:
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
            add_folder(each, mode if each is missing[0] else 0o777)
        except FileExistsError:
            # Another process may have created it just now without syncing it yet, so go on and sync the parent.
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from None
        sync(os.path.dirname(each))


def delete_abandoned(folder: StrPath) -> None:
    """Delete the temporary files of writers that died. Call it only while nobody else writes to the folder."""
    for name in os.listdir(folder):
        if name.startswith(TEMPORARY):
            delete(os.path.join(folder, name))


def map_file(path: str) -> pa.Buffer:
    """Return the current content of a file, memory-mapped. Unlike Python's mmap, this keeps no descriptor open."""
    # Imported here because modules that only write small files should not load Arrow.
    import pyarrow as pa

    with pa.memory_map(path) as file:
        # An empty file cannot be mapped.
        return file.read_buffer() if file.size() else pa.py_buffer(b"")
