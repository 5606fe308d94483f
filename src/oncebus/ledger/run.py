"""Reads and writes runs. A run is an immutable file of accepted keys: one part of a batch, or several batches merged.

All numbers are little-endian. `n` is the number of entries, `m` the number of filter words, `w` the number of spans.

    offset   size  what
    0        8     magic, "ONCERUN" and the format's version as one byte (1)
    8        8     n, unsigned
    16       8     m, unsigned
    24       8     horizon: the greatest time among all rows judged, capped at the clock; signed microseconds
    32       8     forgotten_from: the horizon at which the last of its entries is forgotten; signed microseconds
    40       4     w, unsigned
    44       4     0 if entries have no sequence numbers, 1 if some may have none, 2 if each has one
    48       4     CRC-32 of all bytes from offset 64 to the end
    52       8     mostly_forgotten_from: the horizon at which three quarters of its entries are forgotten; signed
                   microseconds; zero in an empty run
    60       4     CRC-32 of bytes 0 to 59
    64       16 w  spans: pairs of signed microseconds (window, keep), distinct, ascending
             8 m   filter: see `oncebus.ledger.filter`
             8 n   high half of the key's digest, unsigned, ascending
             8 n   low half, unsigned, ascending where the high halves are equal
             8 n   time of acceptance, signed microseconds, ascending where the keys are equal
             8 n   sequence number, signed, unless the number at 44 is 0; if it is 1, the lowest number means "none"
             b n   index of the entry's span, unsigned, only if w > 1; b is 1, 2 or 4: the smallest that holds w

An entry with a negative window is a tombstone (`oncebus.detection.Tombstones`): it cancels one entry that has the same
key, time, sequence number and keep, and that window without the sign.

If all entries share a window, an entry takes 24 bytes, or 32 with a sequence number, plus one byte in the filter.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Memories, Question, Rows, Verdicts, is_forgotten
from oncebus.detection.values import Index, Keys, Numbers, expand
from oncebus.ledger.filter import build_filter, filter_masks, filter_words, passes_filter
from oncebus.ledger.run_header import ADVICE, HEADER_BYTES, CorruptRun, RunHeader, span_type

__all__ = ["CorruptRun", "Entries", "RecallFrom", "Run", "checksum_of", "encode_run"]

BLOCK = 1_000_000
"""The number of entries to look at together where a whole run is read."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Accepted keys with everything that is remembered about them, in the order (high, low, time).

    `spans` are the distinct pairs (window, keep). `span_of` has the index of each entry's span, or is None if there is
    only one span. `sequence` is None if no entry has a sequence number. If each entry has one, `is_numbered`; else
    `NO_SEQUENCE` stands for none.
    """

    high: Keys
    low: Keys
    time: Numbers
    sequence: Numbers | None
    spans: Numbers
    span_of: npt.NDArray[Any] | None
    is_numbered: bool = False

    def __len__(self) -> int:
        return len(self.high)

    @classmethod
    def of(
        cls,
        high: Keys,
        low: Keys,
        time: Numbers,
        sequence: Numbers,
        window: Numbers,
        keep: Numbers,
        *,
        is_numbered: bool = False,
    ) -> Entries:
        """Make entries from columns of the same length."""
        spans, span_of = _distinct_spans(window, keep)
        has_sequence = is_numbered or bool((sequence != NO_SEQUENCE).any())
        return cls(high, low, time, sequence if has_sequence else None, spans, span_of, is_numbered)

    @classmethod
    def to_remember(cls, rows: Rows, verdicts: Verdicts) -> Entries:
        """Make the entries that a batch adds to the ledger: its accepted rows, and its tombstones."""
        added, tombstones = rows.take(verdicts.accepted), verdicts.tombstones
        columns: list[npt.NDArray[Any]] = [
            added.high,
            added.low,
            added.time,
            added.sequence,
            added.window,
            added.keep,
        ]
        if tombstones is not None:
            cancelling = (
                tombstones.high,
                tombstones.low,
                tombstones.time,
                tombstones.sequence,
                tombstones.window,
                tombstones.keep,
            )
            columns = [np.concatenate(pair) for pair in zip(columns, cancelling, strict=True)]
            # By all columns: a batch that is repeated may recall its memories in another order, after a merge.
            order = np.lexsort(columns[::-1])
            columns = [column[order] for column in columns]
        is_numbered = (rows.has_sequence or not len(added)) and (tombstones is None or tombstones.is_numbered)
        return cls.of(*columns, is_numbered=is_numbered)

    def keep(self) -> Numbers | np.int64:
        """Return how long each entry is remembered; a single number if it is the same for all."""
        if self.span_of is None:
            return np.int64(self.spans[0, 1]) if len(self.spans) else np.int64(0)
        return np.asarray(self.spans[self.span_of, 1])

    def window(self) -> Numbers:
        """Return the window of each entry; negative for a tombstone."""
        if self.span_of is None:
            return np.full(len(self), self.spans[0, 0] if len(self.spans) else 0, np.int64)
        return np.asarray(self.spans[self.span_of, 0])

    def take(self, chosen: npt.NDArray[Any] | slice) -> Entries:
        """Return the chosen entries, by mask, by position or as a slice."""
        return Entries(
            self.high[chosen],
            self.low[chosen],
            self.time[chosen],
            None if self.sequence is None else self.sequence[chosen],
            self.spans,
            None if self.span_of is None else self.span_of[chosen],
            self.is_numbered,
        )

    def blocks(self) -> Iterator[Entries]:
        """Yield all entries in slices of at most `BLOCK`, so that a caller needs little memory."""
        for begin in range(0, len(self), BLOCK):
            yield self.take(slice(begin, begin + BLOCK))

    def remembered_at(self, horizon: int) -> Entries:
        """Return the entries that are not forgotten at a horizon."""
        forgotten = is_forgotten(self.time, self.keep(), horizon)
        return self.take(~forgotten).without_unused_spans() if forgotten.any() else self

    def without_unused_spans(self) -> Entries:
        """Return the same entries without the spans that no entry uses."""
        if self.span_of is None:
            return self
        used, span_of = np.unique(self.span_of, return_inverse=True)
        return replace(self, spans=self.spans[used], span_of=span_of.reshape(-1) if len(used) > 1 else None)


def encode_run(entries: Entries, horizon: int) -> list[bytes | memoryview]:
    """Return the content of a run's file, in pieces to be concatenated."""
    size = len(entries)
    forgotten_from, mostly_forgotten_from = _forgetting(entries.time, entries.keep())
    sections: list[npt.NDArray[Any]] = [
        entries.spans.astype("<i8"),
        build_filter(entries.high, entries.low).astype("<u8", copy=False),
        entries.high.astype("<u8", copy=False),
        entries.low.astype("<u8", copy=False),
        entries.time.astype("<i8", copy=False),
    ]
    if entries.sequence is not None:
        sections.append(entries.sequence.astype("<i8", copy=False))
    if entries.span_of is not None:
        sections.append(entries.span_of.astype(span_type(len(entries.spans)), copy=False))
    body = [np.ascontiguousarray(section).data.cast("B") for section in sections if section.size]
    checksum = 0
    for piece in body:
        checksum = zlib.crc32(piece, checksum)
    header = RunHeader(
        size,
        filter_words(size),
        horizon,
        forgotten_from,
        len(entries.spans),
        entries.sequence is not None,
        checksum,
        mostly_forgotten_from,
        entries.is_numbered,
    )
    return [header.to_bytes(), *body]


def checksum_of(pieces: Sequence[bytes | memoryview]) -> int:
    """Return the checksum of the entries in the content of a run's file."""
    return RunHeader.checksum_in(pieces[0])


class Run:
    """A run. Reads the content of its file in place, without copying.

    `data` is the whole file; it may be a memory map, and the run keeps it. Raises `CorruptRun` if the header is not
    that of a run. Only `verify` compares the entries with their checksum.
    """

    def __init__(self, name: str, data: memoryview) -> None:
        self.name = name
        self._data = data
        header = self.header = RunHeader.parse(name, data, len(data))
        size, spans = header.size, header.spans
        self.size = size
        self.horizon = header.horizon
        self.forgotten_from = header.forgotten_from
        self.mostly_forgotten_from = header.mostly_forgotten_from
        at = HEADER_BYTES

        def section(kind: str, count: int) -> npt.NDArray[Any]:
            nonlocal at
            values: npt.NDArray[Any] = np.frombuffer(data, kind, count, at)
            at += values.nbytes
            return values

        self._spans = section("<i8", 2 * spans).reshape(spans, 2)
        self.filter = section("<u8", header.words)
        self._words = self.filter.data
        self._high = section("<u8", size)
        self._low = section("<u8", size)
        self._time = section("<i8", size)
        self._sequence = section("<i8", size) if header.has_sequence else None
        self._span_of = section(header.span_type, size) if spans > 1 else None

    def verify(self) -> None:
        """Read the whole file. Raise `CorruptRun` if a byte has changed since it was written."""
        found = zlib.crc32(self._data[HEADER_BYTES:])
        if found != self.header.checksum:
            raise CorruptRun(
                f"Ledger run '{self.name}' is corrupt: its checksum is {found:08x} instead of "
                f"{self.header.checksum:08x}.{ADVICE}"
            )

    def may_hold_any(self, keys: Sequence[tuple[int, int]]) -> bool:
        """Return whether the filter lets any of these keys pass: (upper half of the high half of the digest, mask).

        It is `passes_filter` for few keys, in plain Python.
        """
        words, count = self._words, self.header.words
        if not count:
            return False
        return any(words[half * count >> 32] & mask == mask for half, mask in keys)

    def recall(self, question: Question, mask: Keys) -> Memories:
        """Return this run's entries for the keys of the question. `mask` is `filter_masks(question.low)`.

        If a key has many entries, it reads only those in the time range of the question.
        """
        if self.size == 0:
            return Memories.none()
        key = np.flatnonzero(passes_filter(self.filter, question.high, mask))
        if len(key) == 0:
            # The usual answer to a small batch. To go on with empty arrays would take four times as long.
            return Memories.none()
        at = np.searchsorted(self._high, question.high[key])
        inside = at < self.size
        key, at = key[inside], at[inside]
        same = self._high[at] == question.high[key]
        key, at = key[same], at[same]
        # Nearly every key has at most one entry here.
        following = np.minimum(at + 1, self.size - 1)
        several = (following > at) & (self._high[following] == question.high[key])
        single = ~several
        single[single] = self._low[at[single]] == question.low[key[single]]
        entry, range_ = self._search(question, key[several], at[several])
        key = np.concatenate([key[single], key[several][range_]])
        entry = np.concatenate([at[single], entry])
        window, keep = self._windows(entry)
        sequence = self._sequences(entry)
        has_sequence = np.asarray(self.header.is_numbered | (sequence != NO_SEQUENCE))
        return Memories(key, self._time[entry], window, keep, sequence, has_sequence)

    def _search(self, question: Question, key: Index, begin: Index) -> tuple[Index, Index]:
        """Find the entries of these keys in the time range of the question.

        Return the positions of the entries, and for each the position of its key in `key`. `begin` has, for each key,
        the first entry with the same high half.
        """
        end = np.searchsorted(self._high, question.high[key], side="right")
        low = question.low[key]
        return expand(
            self._first_not_before(low, question.earliest[key], begin, end),
            self._first_not_before(low, question.latest[key] + 1, begin, end),
        )

    def _first_not_before(self, low: Keys, time: Numbers, begin: Index, end: Index) -> Index:
        """Return the first entry at or after (low, time) in each range, or the end of the range.

        A range has one high half.
        """
        while (begin < end).any():
            middle = (begin + end) // 2
            # Where the search is over, the middle may be past the last entry. Read any entry then, and change nothing.
            read = np.minimum(middle, self.size - 1)
            found_low = self._low[read]
            is_before = (found_low < low) | ((found_low == low) & (self._time[read] < time))
            is_open = begin < end
            begin, end = np.where(is_open & is_before, middle + 1, begin), np.where(is_open & ~is_before, middle, end)
        return begin

    def entries(self) -> Entries:
        """Return all entries, as arrays over the file."""
        columns = (self._high, self._low, self._time, self._sequence, self._spans, self._span_of)
        return Entries(*columns, self.header.is_numbered)

    def _windows(self, chosen: Index) -> tuple[Numbers, Numbers]:
        if self._span_of is None:
            window, keep = self._spans[0]
            return np.full(len(chosen), window, np.int64), np.full(len(chosen), keep, np.int64)
        spans = self._spans[self._span_of[chosen]]
        return spans[:, 0], spans[:, 1]

    def _sequences(self, chosen: Index) -> Numbers:
        if self._sequence is None:
            return np.full(len(chosen), NO_SEQUENCE, np.int64)
        return np.asarray(self._sequence[chosen])


FEW_KEYS = 64
"""Up to so many keys, a run's filter is asked about one after another."""
_HALF = np.uint64(32)


class RecallFrom:
    """A `Recall` function over several runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def __call__(self, question: Question) -> Memories:
        """Return the entries of all runs for the keys of the question."""
        if not self._runs or len(question) == 0:
            return Memories.none()
        mask, runs = filter_masks(question.low), self._runs
        if len(question) <= FEW_KEYS:
            # Nearly all keys of a batch are in no run. For few keys, numpy's fixed cost for each run would be most of
            # what a batch costs.
            pairs = list(zip((question.high >> _HALF).tolist(), mask.tolist(), strict=True))
            runs = [run for run in runs if run.may_hold_any(pairs)]
            if not runs:
                return Memories.none()
        found = [run.recall(question, mask) for run in runs]
        return Memories(
            np.concatenate([one.key for one in found]),
            np.concatenate([one.time for one in found]),
            np.concatenate([one.window for one in found]),
            np.concatenate([one.keep for one in found]),
            np.concatenate([one.sequence for one in found]),
            np.concatenate([one.has_sequence for one in found]),
        )


def _forgetting(time: Numbers, keep: Numbers | np.int64) -> tuple[int, int]:
    """Return the horizon at which all entries are forgotten, and the one at which three quarters of them are."""
    if len(time) == 0:
        return NO_HORIZON, 0
    end = time + keep
    quarter = len(end) // 4
    return int(end.max()), int(np.partition(end, len(end) - 1 - quarter)[len(end) - 1 - quarter])


def _distinct_spans(window: Numbers, keep: Numbers) -> tuple[Numbers, npt.NDArray[Any] | None]:
    """Return the distinct pairs (window, keep), and for each row the index of its pair."""
    if len(window) == 0:
        return np.empty((0, 2), np.int64), None
    if (window == window[0]).all() and (keep == keep[0]).all():
        return np.array([[window[0], keep[0]]], np.int64), None
    spans, span_of = np.unique(np.stack([window, keep], axis=1), axis=0, return_inverse=True)
    return spans, span_of.reshape(-1)
