"""Reads and writes the header of a run: the first 64 bytes, which say where everything else is.

`oncebus.ledger.run` describes the layout of the whole file.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from oncebus.values.errors import OncebusError

MAGIC = b"ONCERUN\x01"
HEADER_BYTES = 64
_BEGIN = struct.Struct("<8sQQqqIIIq")
_END = struct.Struct("<I")


class CorruptRun(OncebusError):
    """The file of a run is damaged."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The header of a run. `spans` and `words` are counts; `checksum` is that of all bytes after the header.

    If entries have sequence numbers, `is_numbered` says whether each has one.
    """

    size: int
    words: int
    horizon: int
    forgotten_from: int
    spans: int
    has_sequence: bool
    checksum: int
    mostly_forgotten_from: int
    is_numbered: bool = False

    def to_bytes(self) -> bytes:
        """Return the header as it is stored."""
        begin = _BEGIN.pack(
            MAGIC,
            self.size,
            self.words,
            self.horizon,
            self.forgotten_from,
            self.spans,
            int(self.has_sequence) + int(self.is_numbered),
            self.checksum,
            self.mostly_forgotten_from,
        )
        return begin + _END.pack(zlib.crc32(begin))

    @classmethod
    def parse(cls, name: str, data: memoryview, file_bytes: int) -> RunHeader:
        """Parse the beginning of a file with `file_bytes` bytes. Raises `CorruptRun` if they do not fit together."""
        if file_bytes < HEADER_BYTES:
            raise CorruptRun(
                f"Ledger run '{name}' is truncated: it has {file_bytes} bytes, less than a header.{ADVICE}"
            )
        magic, size, words, horizon, forgotten_from, spans, sequences, checksum, mostly = _BEGIN.unpack_from(data)
        if magic != MAGIC:
            raise CorruptRun(f"Ledger run '{name}' begins with {magic!r} instead of {MAGIC!r}.{ADVICE}")
        if _END.unpack_from(data, _BEGIN.size) != (zlib.crc32(data[: _BEGIN.size]),):
            raise CorruptRun(f"Ledger run '{name}' has a damaged header.{ADVICE}")
        counts = (size, words, horizon, forgotten_from, spans)
        header = cls(*counts, sequences > 0, checksum, mostly, is_numbered=sequences == 2)
        if header.file_bytes != file_bytes:
            raise CorruptRun(f"Ledger run '{name}' holds {file_bytes} bytes instead of {header.file_bytes}.{ADVICE}")
        return header

    @staticmethod
    def checksum_in(header: bytes | memoryview) -> int:
        """Return the checksum that is stored in a header."""
        return int(_BEGIN.unpack_from(header)[-2])

    @property
    def span_type(self) -> str:
        """Return the type of the index of an entry's span."""
        return span_type(self.spans)

    @property
    def spans_at(self) -> int:
        """Return the offset of the spans."""
        return HEADER_BYTES

    @property
    def filter_at(self) -> int:
        """Return the offset of the filter."""
        return self.spans_at + 16 * self.spans

    @property
    def high_at(self) -> int:
        """Return the offset of the first column. All columns but the last have 8 bytes for each entry."""
        return self.filter_at + 8 * self.words

    @property
    def time_at(self) -> int:
        """Return the offset of the times."""
        return self.high_at + 16 * self.size

    @property
    def span_of_at(self) -> int:
        """Return the offset of the indexes of spans, which are there if there is more than one span."""
        return self.time_at + (16 if self.has_sequence else 8) * self.size

    @property
    def file_bytes(self) -> int:
        """Return the size of the whole file."""
        return self.span_of_at + (int(self.span_type[-1]) * self.size if self.spans > 1 else 0)


def span_type(spans: int) -> str:
    """Return the smallest type that holds the index of one of so many spans."""
    return "<u1" if spans <= 2**8 else "<u2" if spans <= 2**16 else "<u4"


ADVICE = " Restore the file from a backup, or start a new ledger."
