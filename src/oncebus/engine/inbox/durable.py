"""The file `durable`: the last commit of an inbox that may be read. Overwritten in place after each commit's fsync.

All numbers are little-endian.

    offset   size  what
    0        8     commit
    8        4     CRC-32 of bytes 0 to 7
    12       4     zero

The file itself is not synced. After a crash of the machine it may hold an older commit or be torn, but it never holds a
commit that was not durable. The writer corrects it when it opens the inbox.
"""

from __future__ import annotations

import os
import struct
import zlib

NAME = "durable"
_BYTES = 16
_COMMIT = struct.Struct("<q")


def encode_durable(commit: int) -> bytes:
    """Return the bytes of the file."""
    packed = _COMMIT.pack(commit)
    return packed + zlib.crc32(packed).to_bytes(4, "little") + bytes(4)


def read_durable(folder: str) -> int | None:
    """Return the commit; None if the file is missing or torn."""
    try:
        # Open it each time: on a network file system that fetches the newest content, and it costs few microseconds.
        descriptor = os.open(os.path.join(folder, NAME), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(descriptor, _BYTES, 0)
    finally:
        os.close(descriptor)
    if len(data) < _BYTES or zlib.crc32(data[:8]).to_bytes(4, "little") != data[8:12]:
        return None
    commit: int = _COMMIT.unpack_from(data)[0]
    return commit
