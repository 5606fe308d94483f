"""The file `durable`: up to which commit an inbox may be read. Overwritten in place after each commit's fsync.

All numbers are little-endian.

    offset   size  what
    0        8     commit
    8        4     CRC-32 of bytes 0 to 7
    12       4     zero

It is not synced itself: after a crash of the machine it may tell of an older commit or be torn, never of one that was
not durable. The writer sets it right when it opens the inbox.
"""

from __future__ import annotations

import os
import struct
import zlib

NAME = "durable"
_BYTES = 16
_COMMIT = struct.Struct("<q")


def encode_durable(commit: int) -> bytes:
    """The bytes of the file."""
    packed = _COMMIT.pack(commit)
    return packed + zlib.crc32(packed).to_bytes(4, "little") + bytes(4)


def read_durable(folder: str) -> int | None:
    """The commit; None if the file is not there or torn."""
    try:
        # Opened each time: over a network that asks for the newest, and it costs a few microseconds.
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
