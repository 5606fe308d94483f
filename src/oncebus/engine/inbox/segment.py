"""A segment: a file of consecutive commits.

A segment's name is the number of its first commit in 20 digits and `.segment`. All numbers are little-endian.

    offset   size  what
    0        8     magic, "ONCESEG" and the format's version as one byte (1)
    8        4     CRC-32 of bytes 12 to 31
    12       4     number of shards, unsigned
    16       8     first commit
    24       8     position of its first row
    32             frames, see `oncebus.engine.inbox.frame`

A segment is complete once the next one begins. So only the last segment may end in a torn frame: a commit whose sender
never got an answer.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import NamedTuple

import pyarrow as pa

from oncebus.engine.inbox.errors import InboxDamaged
from oncebus.engine.inbox.frame import BadFrame, Frame, decode_frame
from oncebus.values import disk

MAGIC = b"ONCESEG\x01"
HEADER_BYTES = 32
_ENDING = ".segment"
_CHECKED = struct.Struct("<Iqq")


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    shards: int
    commit: int
    position: int


class Place(NamedTuple):
    """The segment and the offset where a commit's frame begins. Valid in any process, as long as the segment exists."""

    segment: int
    offset: int


def segment_path(folder: str, first: int) -> str:
    """Return the path of the segment whose first commit is `first`."""
    return os.path.join(folder, f"{first:020d}{_ENDING}")


def list_segments(folder: str) -> list[int]:
    """Return the first commits of all segments, in ascending order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[: -len(_ENDING)]) for name in names if name.endswith(_ENDING))


def encode_segment_header(shards: int, commit: int, position: int) -> bytes:
    """Return the header of a segment as bytes."""
    checked = _CHECKED.pack(shards, commit, position)
    return MAGIC + zlib.crc32(checked).to_bytes(4, "little") + checked


def decode_segment_header(data: memoryview, path: str, segment: int) -> SegmentHeader:
    """Decode the header of a segment, which is named after its first commit. Raises `InboxDamaged`."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        raise InboxDamaged(f"Inbox file '{path}' begins with {bytes(data[:8])!r} instead of {MAGIC!r}")
    if zlib.crc32(data[12:HEADER_BYTES]).to_bytes(4, "little") != data[8:12]:
        raise InboxDamaged(f"Inbox file '{path}' has a damaged header at offset 0")
    header = SegmentHeader(*_CHECKED.unpack_from(data, 12))
    if header.commit != segment:
        raise InboxDamaged(f"Inbox file '{path}' begins with commit {header.commit}: it has been renamed")
    return header


def damaged(path: str, commit: int, offset: int, reason: BadFrame | str) -> InboxDamaged:
    """Return the error for a durable commit that cannot be read."""
    return InboxDamaged(f"Inbox file '{path}' {reason}, at offset {offset}: commit {commit} cannot be read")


class Cursor:
    """Iterates over frames, from one segment to the next."""

    def __init__(self, folder: str, commit: int, place: Place) -> None:
        self.commit = commit
        self.place = place
        self._folder = folder
        self._mapped_through = 0

    def next(self, durable: int) -> tuple[Frame, Place, memoryview]:
        """Return the frame of the current commit, its place and its memory-mapped segment, and move to the next commit.

        `durable` is the last commit known to be durable; it must not be below the cursor's commit. Raises
        `InboxDamaged` if the frame is missing or has a damaged header.
        """
        # The writer may have truncated the file after its last durable commit since it was mapped. Touching a page
        # beyond the end of a mapped file kills the process.
        if self.commit > self._mapped_through and not self._enter_next(durable):
            self._enter(self.place, durable)
        try:
            frame = decode_frame(self._data, self.place.offset)
        except BadFrame as error:
            frame = self._decode_in_next(error, durable)
        if frame.commit != self.commit:
            raise damaged(self.path, self.commit, self.place.offset, f"has commit {frame.commit}")
        found = frame, self.place, self._data
        self.place = Place(self.place.segment, self.place.offset + frame.length)
        self.commit += 1
        return found

    @property
    def path(self) -> str:
        """Return the path of the segment that the cursor is in."""
        return segment_path(self._folder, self.place.segment)

    def _decode_in_next(self, error: BadFrame, durable: int) -> Frame:
        try:
            if not self._enter_next(durable):
                raise error
            return decode_frame(self._data, self.place.offset)
        except BadFrame as again:
            raise damaged(self.path, self.commit, self.place.offset, again) from again

    def _enter_next(self, durable: int) -> bool:
        """Move to the next segment if it begins with the cursor's commit. Return whether it does."""
        if self.commit == self.place.segment or not os.path.exists(segment_path(self._folder, self.commit)):
            return False
        self._enter(Place(self.commit, HEADER_BYTES), durable)
        return True

    def _enter(self, place: Place, durable: int) -> None:
        self.place = place
        try:
            self._data = memoryview(disk.map_file(self.path)).cast("B")
        except (OSError, pa.ArrowException) as error:
            reason = f"cannot be read ({' '.join(str(error).split())})"
            raise damaged(self.path, self.commit, place.offset, reason) from error
        decode_segment_header(self._data, self.path, place.segment)
        self._mapped_through = durable
