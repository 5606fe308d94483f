"""Body files: bodies that are too large for a row, one file each. All numbers are little-endian.

offset   size  what
0        8     magic, "ONCEBOD" and the format's version as one byte (1)
8        4     CRC-32 of bytes 12 to the end
12       4     zero
16       8     length of the body
24             the body
"""

from __future__ import annotations

import os
import re
import struct
import uuid
import zlib
from collections.abc import Iterable

from oncebus.engine.inbox.errors import InboxDamaged, InboxError, write_failure
from oncebus.values import disk

MAGIC = b"ONCEBOD\x01"
_HEADER_BYTES = 24
_CHECKED = struct.Struct("<IQ")
_NAME = re.compile(r"[0-9A-Za-z_-]{1,128}")


class BodyFiles:
    """A folder of body files. A file is durable before the commit that refers to it, and never changes."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)

    def write(self, body: bytes | memoryview, name: str | None = None) -> str:
        """Make a body durable and return its name, a new one if `name` is None.

        Raises `InboxFull` if the disk is full.
        """
        name = uuid.uuid4().hex if name is None else name
        path = self._path(name)
        checked = _CHECKED.pack(0, len(body))
        check = zlib.crc32(body, zlib.crc32(checked))
        try:
            disk.make_folder(self.folder)
            disk.publish(self.folder, name, [MAGIC, check.to_bytes(4, "little"), checked, body])
        except OSError as error:
            raise write_failure(path, error) from error
        return name

    def read(self, name: str) -> memoryview:
        """Return a body, memory-mapped.

        Raises `FileNotFoundError` if there is none, and `InboxDamaged` if its checksum is wrong.
        """
        path = self._path(name)
        data = memoryview(disk.map_file(path)).cast("B")
        if len(data) < _HEADER_BYTES or data[:8] != MAGIC:
            raise InboxDamaged(f"Body file '{path}' begins with {bytes(data[:8])!r} instead of {MAGIC!r}")
        length = len(data) - _HEADER_BYTES
        if _CHECKED.unpack_from(data, 12)[1] != length:
            raise InboxDamaged(
                f"Body file '{path}' holds {length} bytes instead of {_CHECKED.unpack_from(data, 12)[1]}"
            )
        if zlib.crc32(data[12:]).to_bytes(4, "little") != data[8:12]:
            raise InboxDamaged(f"Body file '{path}' is damaged: its checksum differs")
        return data[_HEADER_BYTES:]

    def delete(self, names: Iterable[str]) -> None:
        """Delete files. Ignores those that are already deleted."""
        for name in names:
            path = self._path(name)
            try:
                disk.delete(path)
            except OSError as error:
                raise InboxError(f"Body file '{path}' cannot be deleted: {error.strerror}") from error

    def names(self) -> list[str]:
        """Return the names of all files, in no particular order."""
        if not os.path.isdir(self.folder):
            return []
        return [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]

    def delete_unfinished(self) -> None:
        """Delete files that a dead writer left unfinished. Call it only while nobody writes."""
        if os.path.isdir(self.folder):
            disk.delete_abandoned(self.folder)

    def _path(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise InboxError(
                f"Body file name '{name}' is too long, or contains characters other than letters, digits, - and _"
            )
        return os.path.join(self.folder, name)
