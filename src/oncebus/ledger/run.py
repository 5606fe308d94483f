"""A run: the keys accepted in one part of one batch, or in several batches merged, as one immutable file.

All numbers are little-endian. `n` is the number of entries, `m` of filter words, `w` of spans.

    offset   size  what
    0        8     magic, "ONCERUN" and the format's version as one byte (1)
    8        8     n, unsigned
    16       8     m, unsigned
    24       8     horizon: the greatest time among all rows judged, capped at the clock; signed microseconds
    32       8     forgotten_from: the horizon at which the last of its entries is forgotten; signed microseconds
    40       4     w, unsigned
    44       4     1 if entries have sequence numbers, else 0
    48       4     CRC-32 of all bytes from offset 64 to the end
    52       4     CRC-32 of bytes 0 to 51
    56       8     zero
    64       16 w  spans: pairs of signed microseconds (window, keep), distinct, ascending
             8 m   filter: see `oncebus.ledger.filter`
             8 n   high half of the key's digest, unsigned, ascending
             8 n   low half, unsigned, ascending where the high halves are equal
             8 n   time of acceptance, signed microseconds, ascending where the keys are equal
             8 n   sequence number, signed, only if entries have one (the least number of all stands for "none")
             b n   which span the entry has, unsigned, only if w > 1; b is 1, 2 or 4: the least that holds w

Entries that share a window need 24 bytes, 32 with a sequence number, and one byte more for the filter.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebus.detection import NO_HORIZON, NO_SEQUENCE
from oncebus.detection.decision import Index, Keys, Memories, Numbers
from oncebus.errors import OncebusError
from oncebus.ledger.filter import build_filter, filter_words, passes_filter

MAGIC = b"ONCERUN\x01"
_HEADER = struct.Struct("<8sQQqqIII")
_HEADER_BYTES = 64


class CorruptRun(OncebusError):
    """A run's file is not what was once written."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Accepted keys with all that is remembered about them, in the order (high, low, time)."""

    high: Keys
    low: Keys
    time: Numbers
    window: Numbers
    keep: Numbers
    sequence: Numbers

    def __len__(self) -> int:
        return len(self.high)

    def take(self, chosen: npt.NDArray[Any]) -> Entries:
        """The chosen entries, by mask or by position."""
        return Entries(
            self.high[chosen],
            self.low[chosen],
            self.time[chosen],
            self.window[chosen],
            self.keep[chosen],
            self.sequence[chosen],
        )


def encode_run(entries: Entries, horizon: int) -> list[bytes | memoryview]:
    """The bytes of a run's file, in pieces."""
    size = len(entries)
    spans, span_of = _spans(entries)
    forgotten_from = int((entries.time + entries.keep).max()) if size else NO_HORIZON
    has_sequence = bool((entries.sequence != NO_SEQUENCE).any())
    sections: list[npt.NDArray[Any]] = [
        spans.astype("<i8"),
        build_filter(entries.high, entries.low).astype("<u8"),
        entries.high.astype("<u8"),
        entries.low.astype("<u8"),
        entries.time.astype("<i8"),
    ]
    if has_sequence:
        sections.append(entries.sequence.astype("<i8"))
    if len(spans) > 1:
        sections.append(span_of.astype(_span_type(len(spans))))
    body = [memoryview(np.ascontiguousarray(section)).cast("B") for section in sections if section.size]
    checksum = 0
    for piece in body:
        checksum = zlib.crc32(piece, checksum)
    header = _HEADER.pack(
        MAGIC, size, filter_words(size), horizon, forgotten_from, len(spans), int(has_sequence), checksum
    )
    header += struct.pack("<I", zlib.crc32(header))
    return [header.ljust(_HEADER_BYTES, b"\0"), *body]


class Run:
    """A run's file, read in place.

    `data` is everything in the file; it may be a memory map and is kept. Raises `CorruptRun` if it cannot be a run.
    The entries themselves are compared with their checksum only by `verify`.
    """

    def __init__(self, name: str, data: memoryview) -> None:
        self.name = name
        self._data = data
        if len(data) < _HEADER_BYTES:
            raise CorruptRun(f"Ledger run '{name}' is truncated: {len(data)} bytes, less than a header.{_ADVICE}")
        magic, size, words, horizon, forgotten_from, spans, has_sequence, checksum = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise CorruptRun(f"Ledger run '{name}' begins with {magic!r} instead of {MAGIC!r}.{_ADVICE}")
        if struct.unpack_from("<I", data, _HEADER.size)[0] != zlib.crc32(data[: _HEADER.size]):
            raise CorruptRun(f"Ledger run '{name}' has a damaged header.{_ADVICE}")
        span_bytes = np.dtype(_span_type(spans)).itemsize if spans > 1 else 0
        expected = _HEADER_BYTES + 16 * spans + 8 * words + (24 + 8 * has_sequence + span_bytes) * size
        if len(data) != expected:
            raise CorruptRun(f"Ledger run '{name}' holds {len(data)} bytes instead of {expected}.{_ADVICE}")
        self.size: int = size
        self.horizon: int = horizon
        self.forgotten_from: int = forgotten_from
        self._checksum: int = checksum
        at = _HEADER_BYTES

        def section(kind: str, count: int) -> npt.NDArray[Any]:
            nonlocal at
            values: npt.NDArray[Any] = np.frombuffer(data, kind, count, at)
            at += values.nbytes
            return values

        self._spans = section("<i8", 2 * spans).reshape(spans, 2)
        self._filter = section("<u8", words)
        self._high = section("<u8", size)
        self._low = section("<u8", size)
        self._time = section("<i8", size)
        self._sequence = section("<i8", size) if has_sequence else None
        self._span_of = section(_span_type(spans), size) if spans > 1 else None

    def verify(self) -> None:
        """Read everything once; raise `CorruptRun` if a byte has changed since it was written."""
        found = zlib.crc32(self._data[_HEADER_BYTES:])
        if found != self._checksum:
            raise CorruptRun(
                f"Ledger run '{self.name}' is corrupt: its checksum is {found:08x} instead of "
                f"{self._checksum:08x}.{_ADVICE}"
            )

    def recall(self, high: Keys, low: Keys, mask: Keys) -> Memories:
        """What this run remembers about any of the keys, which are distinct and ascending; `mask` is `filter_masks(low)`."""
        if self.size == 0:
            return Memories.none()
        likely = np.flatnonzero(passes_filter(self._filter, high, mask))
        wanted = high[likely]
        at = np.searchsorted(self._high, wanted)
        # Nearly always a key has one entry here at most; where it has several they follow each other.
        asked: list[Index] = []
        found: list[Index] = []
        while len(likely):
            inside = at < self.size
            likely, wanted, at = likely[inside], wanted[inside], at[inside]
            same = self._high[at] == wanted
            likely, wanted, at = likely[same], wanted[same], at[same]
            exact = self._low[at] == low[likely]
            asked.append(likely[exact])
            found.append(at[exact])
            at = at + 1
        if not asked:
            return Memories.none()
        entry = np.concatenate(found)
        window, keep = self._windows(entry)
        return Memories(np.concatenate(asked), self._time[entry], window, keep, self._sequences(entry))

    def entries(self) -> Entries:
        """All entries, as arrays over the file where possible."""
        every = slice(None)
        window, keep = self._windows(every)
        return Entries(self._high, self._low, self._time, window, keep, self._sequences(every))

    def _windows(self, chosen: Index | slice) -> tuple[Numbers, Numbers]:
        if self._span_of is None:
            count = len(self._time[chosen])
            window, keep = self._spans[0] if len(self._spans) else (0, 0)
            return np.full(count, window, np.int64), np.full(count, keep, np.int64)
        spans = self._spans[self._span_of[chosen]]
        return spans[:, 0], spans[:, 1]

    def _sequences(self, chosen: Index | slice) -> Numbers:
        if self._sequence is None:
            return np.full(len(self._time[chosen]), NO_SEQUENCE, np.int64)
        return np.asarray(self._sequence[chosen])


_ADVICE = " Restore the file from a copy, or start a new ledger."


def _spans(entries: Entries) -> tuple[Numbers, npt.NDArray[np.intp]]:
    """The distinct pairs (window, keep), and for each entry which of them it has."""
    if len(entries) == 0:
        return np.empty((0, 2), np.int64), np.empty(0, np.intp)
    if (entries.window == entries.window[0]).all() and (entries.keep == entries.keep[0]).all():
        return np.array([[entries.window[0], entries.keep[0]]]), np.zeros(len(entries), np.intp)
    pairs = np.stack([entries.window, entries.keep], axis=1)
    spans, span_of = np.unique(pairs, axis=0, return_inverse=True)
    return spans, span_of.reshape(-1)


def _span_type(spans: int) -> str:
    return "<u1" if spans <= 2**8 else "<u2" if spans <= 2**16 else "<u4"
