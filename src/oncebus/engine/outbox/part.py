"""Reads and writes the parts of outbox entries. A part is one file with the rows that one task has processed.

Its name is `{first:020d}-{last:020d}-{part}of{parts}`: the first and last commit of the micro-batch, the number of the
part (from 0) and the number of parts. All numbers are little-endian.

    offset   size  what
    0        8     magic, "ONCEOUT" and the format's version as one byte (1)
    8        4     CRC-32 of bytes 12 to the end
    12       4     length of the query's id
    16       8     length of the file
    24       8     first commit
    32       8     last commit
    40       4     number of the part
    44       4     number of parts
    48       8     the query's number of the micro-batch
    56             id of the query that wrote the part, in ASCII, then packed results: see `oncebus.model.packed`
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from oncebus.model.messages import Result
from oncebus.model.packed import BadRows, pack_results, unpack_results
from oncebus.values import disk
from oncebus.values.errors import OncebusError

MAGIC = b"ONCEOUT\x01"
_CHECKED = struct.Struct("<IQqqIIq")
_CHECKED_FROM = 12
_HEADER_BYTES = _CHECKED_FROM + _CHECKED.size
_ADVICE = " Restore the file from a backup."
_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)of(\d+)")


class OutboxError(OncebusError):
    """An outbox cannot be used."""


class OutboxDamaged(OutboxError):
    """The file of a part is damaged."""


class Batch(NamedTuple):
    """Identifies a micro-batch by its query and its number in that query."""

    query: str
    number: int


class OutboxPart(NamedTuple):
    """Identifies one part of a micro-batch, which has the commits `first` to `last`, inclusive."""

    first: int
    last: int
    part: int
    parts: int

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.first:020d}-{self.last:020d}-{self.part}of{self.parts}"

    @classmethod
    def parse(cls, name: str) -> OutboxPart | None:
        """Return the part that a file name describes; None if it is not the name of a part."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(*map(int, match.groups()))


def write_part(
    drafts: str | os.PathLike[str],
    part: OutboxPart,
    results: Iterable[Result],
    batch: Batch,
    *,
    before: Callable[[], object] | None = None,
) -> None:
    """Publish a part, atomically and durably. Also write parts that have no rows, or the entry never becomes complete.

    `drafts` is the folder that `Outbox.begin` made for the query. The part is written there, then renamed into the
    parent folder, which is the outbox. `before` is called when the part is on disk but not visible yet; if it raises,
    the part does not appear. Writing a part again, from another task or after a crash, replaces it. Raises
    `OutboxError` if the part cannot be written, or if another query has begun.
    """
    folder = os.path.dirname(os.path.abspath(drafts))
    if not (0 < part.first <= part.last and 0 <= part.part < part.parts):
        raise OutboxError(f"Outbox part '{part.name}' does not name a part of commits {part.first} to {part.last}")
    path = os.path.join(folder, part.name)
    try:
        query = batch.query.encode()
        body = query + pack_results(results)
        length = _HEADER_BYTES + len(body)
        checked = _CHECKED.pack(len(query), length, *part, batch.number) + body
    except (struct.error, TypeError, ValueError) as error:
        raise OutboxError(f"Outbox part '{path}' cannot be encoded: {' '.join(str(error).split())}") from error
    try:
        disk.publish(
            folder,
            part.name,
            [MAGIC, zlib.crc32(checked).to_bytes(4, "little"), checked],
            aside=os.fspath(drafts),
            before=before,
        )
    except FileNotFoundError as error:
        raise _too_late(path, drafts) from error
    except OSError as error:
        raise OutboxError(f"Outbox part '{path}' cannot be written: {error.strerror}") from error


def refuse_late(drafts: str | os.PathLike[str], part: OutboxPart) -> None:
    """Raise `OutboxError` if another query has begun, so that the part could not be published."""
    if not os.path.isdir(drafts):
        raise _too_late(os.path.join(os.path.dirname(os.path.abspath(drafts)), part.name), drafts)


def _too_late(path: str, drafts: str | os.PathLike[str]) -> OutboxError:
    return OutboxError(f"Outbox part '{path}' comes too late: a newer query has deleted '{os.fspath(drafts)}'")


def read_part(folder: str, part: OutboxPart) -> tuple[list[Result], Batch]:
    """Return the results in a part, checked against its checksum, and the batch that wrote it.

    Raises `OutboxDamaged`.
    """
    path = os.path.join(folder, part.name)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise OutboxDamaged(f"Outbox part '{path}' cannot be read: {error.strerror}") from error
    if len(data) < _HEADER_BYTES or data[:8] != MAGIC:
        raise OutboxDamaged(f"Outbox part '{path}' begins with {data[:8]!r} instead of {MAGIC!r}.{_ADVICE}")
    found = zlib.crc32(memoryview(data)[_CHECKED_FROM:])
    if found.to_bytes(4, "little") != data[8:12]:
        raise OutboxDamaged(f"Outbox part '{path}' is damaged: its checksum is {found:08x}.{_ADVICE}")
    query_length, length, *place, number = _CHECKED.unpack_from(data, _CHECKED_FROM)
    if length != len(data):
        raise OutboxDamaged(f"Outbox part '{path}' holds {len(data)} bytes instead of {length}.{_ADVICE}")
    inside = OutboxPart(*place)
    if inside != part:
        raise OutboxDamaged(f"Outbox part '{path}' holds part '{inside.name}': the file was renamed.{_ADVICE}")
    results_at = _HEADER_BYTES + query_length
    try:
        return unpack_results(data[results_at:]), Batch(data[_HEADER_BYTES:results_at].decode(), number)
    except BadRows as error:
        raise OutboxDamaged(f"Outbox part '{path}' {error}.{_ADVICE}") from error
