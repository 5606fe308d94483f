"""A frame: one commit in a segment.

All numbers are little-endian; `s` is the number of shards.

    offset   size  what
    0        8     magic, "ONCECOM" and the format's version as one byte (1)
    8        4     CRC-32 of bytes 12 to 48 + 8 s
    12       4     s, unsigned
    16       8     commit, from 1, one more than the frame before
    24       8     version of the catalogue the commit was accepted under
    32       8     position of the first row
    40       8     number of rows, in all shards
    48       8 s   for each shard: the length of its piece, unsigned, 4 bytes (0: no rows); CRC-32 of the piece, 4 bytes
    48+8s          the pieces, in the order of the shards

A piece has the packed rows of its shard, see `oncebus.model.packed`.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oncebus.engine.inbox.errors import RowsRefused
from oncebus.model.messages import LogRow
from oncebus.model.packed import BadRows, Bases, unpack_rows

MAGIC = b"ONCECOM\x01"
MOST_SHARDS = 1024
_PREFIX = struct.Struct("<8sII")
_CHECKED_FROM = 12
_FIXED_BYTES = 48


class BadFrame(Exception):
    """There is no complete frame at this offset. The text says what is wrong, as the second half of a sentence."""


class Frame(NamedTuple):
    """The header of a frame. `pieces` are (offset in the frame, length, CRC-32), one for each shard."""

    commit: int
    catalogue: int
    position: int
    rows: int
    length: int
    pieces: list[tuple[int, int, int]]


def encode_frame(
    pieces: Sequence[tuple[int, bytes]], commit: int, catalogue: int, position: int, rows: int, shards: int
) -> bytes:
    """Return the bytes of a commit's frame. `pieces` has (shard, its packed rows), by ascending shard.

    Raises `RowsRefused`.
    """
    lengths_and_checks = [0] * (2 * shards)
    for shard, piece in pieces:
        lengths_and_checks[2 * shard] = len(piece)
        lengths_and_checks[2 * shard + 1] = zlib.crc32(piece)
    try:
        checked = _checked(shards).pack(shards, commit, catalogue, position, rows, *lengths_and_checks)
    except struct.error as error:
        raise RowsRefused(f"Commit {commit} of {rows} rows does not fit a frame: {error}") from error
    check = zlib.crc32(checked).to_bytes(4, "little")
    return b"".join([MAGIC, check, checked, *(piece for _, piece in pieces)])


def decode_frame(data: memoryview, offset: int) -> Frame:
    """Decode the frame at an offset. Verifies the header, but not the pieces. Raises `BadFrame`."""
    room = len(data) - offset
    if room < _FIXED_BYTES:
        raise BadFrame(f"ends after {max(room, 0)} bytes of a frame")
    magic, check, shards = _PREFIX.unpack_from(data, offset)
    if magic != MAGIC:
        raise BadFrame(f"begins with {magic!r} instead of {MAGIC!r}")
    header = _FIXED_BYTES + 8 * shards
    if not 0 < shards <= MOST_SHARDS:
        raise BadFrame("has a damaged header")
    if room < header:
        raise BadFrame(f"ends after {room} bytes of a frame")
    if zlib.crc32(data[offset + _CHECKED_FROM : offset + header]) != check:
        raise BadFrame("has a damaged header")
    _, commit, catalogue, position, rows, *lengths_and_checks = _checked(shards).unpack_from(
        data, offset + _CHECKED_FROM
    )
    pieces = []
    length = header
    for shard in range(shards):
        pieces.append((length, lengths_and_checks[2 * shard], lengths_and_checks[2 * shard + 1]))
        length += lengths_and_checks[2 * shard]
    if room < length:
        raise BadFrame(f"ends after {room} of {length} bytes of a frame")
    return Frame(commit, catalogue, position, rows, length, pieces)


def check_piece(data: memoryview, offset: int, frame: Frame, shard: int) -> None:
    """Verify the checksum of one shard's piece of a frame. `offset` is where the frame begins. Raises `BadFrame`."""
    start, length, check = frame.pieces[shard]
    found = zlib.crc32(data[offset + start : offset + start + length])
    if found != check:
        raise BadFrame(f"is damaged in shard {shard}: its checksum is {found:08x} instead of {check:08x}")


def decode_piece(
    data: memoryview, offset: int, frame: Frame, shard: int, bases: Bases | None = None
) -> Iterator[LogRow]:
    """Yield the rows of a shard. The piece must be verified. `bases` are added to their numbers and times.

    Raises `BadFrame`.
    """
    start, length, _ = frame.pieces[shard]
    piece = bytes(data[offset + start : offset + start + length])
    try:
        yield from unpack_rows(piece, frame.position, frame.commit, frame.catalogue, bases)
    except BadRows as error:
        raise BadFrame(str(error)) from error


@functools.cache
def _checked(shards: int) -> struct.Struct:
    return struct.Struct(f"<Iqqqq{2 * shards}I")
