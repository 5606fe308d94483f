"""Reads and writes the parts of outbox entries. A part is one file with the rows that one task has processed.

Its name is `{first:020d}-{last:020d}-{part}of{parts}`: the first and last commit of the micro-batch, the number of the
part (from 0) and the number of parts. All numbers are little-endian.

    offset   size  what
    0        8     magic, "ONCEOUT" and the format's version as one byte (1)
    8        4     CRC-32 of bytes 12 to the end
    12       4     zero
    16             an Arrow IPC stream of the schema `oncebus.model.messages.OUTBOX_SCHEMA`, without dictionaries or
                   compression; the schema's metadata has `first`, `last`, `part` and `parts`, `query` (the id of the
                   query that wrote it) and `batch` (its number of the micro-batch), numbers as decimal text
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa

from oncebus.model.messages import OUTBOX_SCHEMA
from oncebus.values import disk
from oncebus.values.errors import OncebusError

MAGIC = b"ONCEOUT\x01"
_HEADER_BYTES = 16
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
    def of(cls, rows: pa.Table) -> OutboxPart:
        """Return the part that the first row describes, in columns named like the fields of this class."""
        return cls(*(rows.column(name)[0].as_py() for name in cls._fields))

    @classmethod
    def parse(cls, name: str) -> OutboxPart | None:
        """Return the part that a file name describes; None if it is not the name of a part."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(*map(int, match.groups()))


def write_part(
    drafts: str | os.PathLike[str],
    part: OutboxPart,
    rows: pa.Table | Iterable[pa.RecordBatch],
    batch: Batch,
    *,
    before: Callable[[], object] | None = None,
) -> None:
    """Publish a part, atomically and durably. Also write parts that have no rows, or the entry never becomes complete.

    `drafts` is the folder that `Outbox.begin` made for the query. The part is written there, then renamed into the
    parent folder, which is the outbox. `before` is called when the part is on disk but not visible yet; if it raises,
    the part does not appear. The columns are those of `OUTBOX_SCHEMA`, in any order; their types must be castable to
    the schema's. Writing a part again, from another task or after a crash, replaces it. Raises `OutboxError` if the
    part cannot be written, or if another query has begun.
    """
    folder = os.path.dirname(os.path.abspath(drafts))
    if not (0 < part.first <= part.last and 0 <= part.part < part.parts):
        raise OutboxError(f"Outbox part '{part.name}' does not name a part of commits {part.first} to {part.last}")
    path = os.path.join(folder, part.name)
    try:
        table = _conformed(rows)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise OutboxError(f"Outbox part '{path}' cannot be encoded: {' '.join(str(error).split())}") from error
    sink = pa.BufferOutputStream()
    metadata = {name: str(value) for name, value in part._asdict().items()}
    metadata |= {"query": batch.query, "batch": str(batch.number)}
    with pa.ipc.new_stream(sink, OUTBOX_SCHEMA.with_metadata(metadata)) as stream:
        stream.write_table(table)
    body = sink.getvalue()
    check = zlib.crc32(body, zlib.crc32(bytes(4)))
    try:
        disk.publish(
            folder,
            part.name,
            [MAGIC, check.to_bytes(4, "little"), bytes(4), body],
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


def read_part(folder: str, part: OutboxPart) -> tuple[pa.Table, Batch]:
    """Return the rows of a part, checked against its checksum, and the batch that wrote it. Raises `OutboxDamaged`."""
    path = os.path.join(folder, part.name)
    try:
        buffer = disk.map_file(path)
        data = memoryview(buffer).cast("B")
    except (OSError, pa.ArrowException) as error:
        raise OutboxDamaged(f"Outbox part '{path}' cannot be read: {' '.join(str(error).split())}") from error
    if len(data) < _HEADER_BYTES or data[:8] != MAGIC:
        raise OutboxDamaged(f"Outbox part '{path}' begins with {bytes(data[:8])!r} instead of {MAGIC!r}.{_ADVICE}")
    found = zlib.crc32(data[12:])
    if found.to_bytes(4, "little") != data[8:12]:
        raise OutboxDamaged(f"Outbox part '{path}' is damaged: its checksum is {found:08x}.{_ADVICE}")
    with pa.ipc.open_stream(buffer.slice(_HEADER_BYTES)) as stream:
        table = stream.read_all()
    metadata = table.schema.metadata
    inside = OutboxPart(*(int(metadata[name.encode()]) for name in OutboxPart._fields))
    if inside != part:
        raise OutboxDamaged(f"Outbox part '{path}' holds part '{inside.name}': the file was renamed.{_ADVICE}")
    return table.replace_schema_metadata(None), Batch(metadata[b"query"].decode(), int(metadata[b"batch"]))


def _conformed(batches: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table:
    if not isinstance(batches, pa.Table):
        some = list(batches)
        batches = pa.Table.from_batches(some) if some else OUTBOX_SCHEMA.empty_table()
    table = batches.select(OUTBOX_SCHEMA.names).replace_schema_metadata(None)
    return table if table.schema.equals(OUTBOX_SCHEMA) else table.cast(OUTBOX_SCHEMA)
