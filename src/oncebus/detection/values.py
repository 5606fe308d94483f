"""The values of detection, as columns of plain numbers: rows, memories, verdicts and tombstones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]

NO_HORIZON = -(2**63)
"""The horizon of a first batch: nothing has been seen, so nothing is forgotten."""

NO_SEQUENCE = -(2**63)
"""What stands for the sequence number of a row that has none. It may be a number too, so a flag tells them apart."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one batch, as columns, in any order.

    `high` and `low` are the two halves of the 128-bit digest of the key; they mean nothing where `has_key` is false.
    A row with a negative `window` is a forget; its key must be valid. `keep` is how long the row is remembered if it is
    accepted: its window plus the lateness. `sequence` is the name under which a duplicate's record knows its original;
    it means nothing unless `has_sequence`.

    Rows of equal times are judged in the order of `place`; if that is None, in the order of `sequence`. `tie` takes the
    positions of rows that even so have no order, and returns a number for each. Rows that differ must get different
    numbers, so that the verdicts do not depend on the order of arrival.
    """

    high: Keys
    low: Keys
    has_key: Flags
    time: Numbers
    window: Numbers
    keep: Numbers
    sequence: Numbers
    tie: Callable[[Index], Numbers]
    place: Numbers | None = None
    has_sequence: bool = True

    def __len__(self) -> int:
        return len(self.time)

    def take(self, chosen: Index) -> Rows:
        """Return the chosen rows, by position."""
        return Rows(
            self.high[chosen],
            self.low[chosen],
            self.has_key[chosen],
            self.time[chosen],
            self.window[chosen],
            self.keep[chosen],
            self.sequence[chosen],
            lambda positions: self.tie(chosen[positions]),
            None if self.place is None else self.place[chosen],
            self.has_sequence,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Which row of several counts.

    If `keeps_last`, a batch judges its rows in the reverse order, so that of repeated rows the last one is new. If
    `extends`, every row with a key is remembered, so that a duplicate extends the window.
    """

    keeps_last: bool = False
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Memories:
    """The rows that earlier batches accepted for the keys of a `Question`.

    `key` is the position of a row's key there. A memory with a negative `window` is a tombstone: see `Tombstones`.
    """

    key: Index
    time: Numbers
    window: Numbers
    keep: Numbers
    sequence: Numbers
    has_sequence: Flags

    @classmethod
    def none(cls) -> Memories:
        """Return no memories."""
        number = np.empty(0, np.int64)
        return cls(np.empty(0, np.intp), number, number, number, number, np.empty(0, np.bool_))

    def take(self, chosen: Flags | Index) -> Memories:
        """Return the chosen memories, by mask or by position."""
        return Memories(
            self.key[chosen],
            self.time[chosen],
            self.window[chosen],
            self.keep[chosen],
            self.sequence[chosen],
            self.has_sequence[chosen],
        )


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The rows of earlier batches that forgets of this batch made the ledger forget.

    To be stored beside the accepted rows. A tombstone has all values of the row that it cancels, but a negative window.
    So both leave the ledger at the same horizon. Each tombstone cancels one row. If all these rows have sequence
    numbers, `is_numbered`.
    """

    high: Keys
    low: Keys
    time: Numbers
    window: Numbers
    keep: Numbers
    sequence: Numbers
    is_numbered: bool

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdict on each row, in the order of the input, and the rows to remember.

    `original_time` and `has_original_sequence` are valid only where `is_duplicate` is true, and `original_sequence`
    where both flags are. `accepted` holds the positions
    of the rows to remember, in the order of (high, low, time), which is the order of a run: all new rows that have a
    key, without those that a later row of the batch forgets, or simply all rows that have a key if duplicates extend
    the window. `tombstones` is None if no earlier row was forgotten. `horizon` is the horizon of the batch.
    """

    is_duplicate: Flags
    original_time: Numbers
    original_sequence: Numbers
    has_original_sequence: Flags
    accepted: Index
    tombstones: Tombstones | None = None
    horizon: int = NO_HORIZON


@dataclass(frozen=True, slots=True)
class Question:
    """The distinct keys of a batch in ascending order (high, low), and a time range for each.

    An entry accepted before `earliest` or after `latest` cannot make any row of its key a duplicate.
    """

    high: Keys
    low: Keys
    earliest: Numbers
    latest: Numbers

    def __len__(self) -> int:
        return len(self.high)


Recall = Callable[[Question], Memories]
"""Returns earlier rows with the keys of a question. It must include all rows between its `earliest` and `latest`."""


def recall_nothing(question: Question) -> Memories:  # noqa: ARG001
    """Return no memories. Serves as the `Recall` function of a batch without a ledger."""
    return Memories.none()


def expand(begin: Index, end: Index) -> tuple[Index, Index]:
    """Return all pairs (position, range number) such that the position lies in the range. `end` is exclusive."""
    length = np.maximum(end - begin, 0)
    range_ = np.repeat(np.arange(len(begin)), length)
    offset = np.arange(len(range_)) - np.repeat(np.cumsum(length) - length, length)
    return begin[range_] + offset, range_
