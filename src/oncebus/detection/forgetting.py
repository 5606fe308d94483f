"""Decides which memories count, and what a forget changes.

A memory stops counting at a horizon, or earlier if a forget cancels it: see `Tombstones`. The order of entries and
tombstones does not matter, so runs can be merged in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from oncebus.detection.values import NO_HORIZON, Flags, Index, Keys, Memories, Numbers, Rows, Verdicts


def is_forgotten(time: Numbers, keep: Numbers | np.int64, horizon: int) -> Flags:
    """Return, for each entry accepted at `time` and kept for `keep`, whether it is forgotten at this horizon."""
    # Subtract on the side of the horizon: `time + keep` may exceed 64 bits, but `horizon - keep` does not, except
    # without a horizon, where nothing is forgotten.
    if horizon == NO_HORIZON:
        return np.zeros(len(time), np.bool_)
    return np.asarray(time <= horizon - keep, np.bool_)


def find_uncancelled(window: Numbers, keys: Sequence[Keys | Index], others: Sequence[Numbers]) -> Flags:
    """Return which entries are left when each tombstone and one entry that it cancels are taken away together.

    `window` is negative for tombstones. An entry and its tombstone have equal `keys`, `others` and windows but for the
    sign. A tombstone stays if its entry is not among these.
    """
    left = np.ones(len(window), np.bool_)
    is_tombstone = window < 0
    if not is_tombstone.any():
        return left
    at = np.flatnonzero(np.isin(keys[0], keys[0][is_tombstone]))
    columns = [column[at] for column in (*keys, *others, np.abs(window))]
    order = np.lexsort([is_tombstone[at], *columns])
    at = at[order]
    starts = np.ones(len(at), np.bool_)
    starts[1:] = np.logical_or.reduce([column[order[1:]] != column[order[:-1]] for column in columns])
    first = np.flatnonzero(starts)
    size = np.diff(np.append(first, len(at)))
    tombstones = np.add.reduceat(is_tombstone[at].astype(np.intp), first)
    pairs = np.minimum(tombstones, size - tombstones)
    # In a group, entries come before tombstones. So the pairs are taken from both ends.
    rank = np.arange(len(at)) - np.repeat(first, size)
    taken = np.repeat(pairs, size)
    left[at] = (rank >= taken) & (rank < np.repeat(size, size) - taken)
    return left


def only_remembered(memories: Memories, horizon: int) -> Memories:
    """Return the memories that count: neither forgotten at the horizon nor cancelled by a tombstone."""
    memories = memories.take(~is_forgotten(memories.time, memories.keep, horizon))
    if (memories.window < 0).any():
        left = find_uncancelled(memories.window, [memories.key], [memories.time, memories.sequence, memories.keep])
        memories = memories.take(left & (memories.window >= 0))
    return memories


class _Known(NamedTuple):
    """An accepted row that later rows of its key are compared with, and its position among the memories or rows."""

    time: int
    sequence: int
    window: int
    at: int
    has_sequence: bool

    def is_near(self, time: int, window: int) -> bool:
        return abs(time - self.time) < min(window, self.window)


def judge_with_forgets(
    rows: Rows, order: Index, key: Index, memories: Memories, verdicts: Verdicts
) -> tuple[Index, Index]:
    """Write the verdicts on the rows of keys that have forgets.

    Return the places in `order` of the new rows that are not forgotten again, and the positions of the memories that
    are. This is a plain loop, because people forget few keys.
    """
    earlier: dict[int, list[_Known]] = {}
    places = np.arange(len(memories.key))
    columns = (memories.time, memories.sequence, memories.window, places, memories.has_sequence)
    for of, *values in zip(memories.key.tolist(), *(column.tolist() for column in columns), strict=True):
        earlier.setdefault(of, []).append(_Known._make(values))
    kept: list[int] = []
    cancelled: list[int] = []
    own: list[_Known] = []
    for place, (row, of) in enumerate(zip(order.tolist(), key.tolist(), strict=True)):
        if place and of != key[place - 1]:
            kept += [known.at for known in own]
            own = []
        time, sequence, window = int(rows.time[row]), int(rows.sequence[row]), int(rows.window[row])
        before = earlier.get(of, [])
        near = [known for known in before if known.is_near(time, abs(window))] or [
            known for known in own if known.is_near(time, abs(window))
        ]
        if near:
            original = min(near)
            verdicts.is_duplicate[row] = True
            verdicts.original_time[row], verdicts.original_sequence[row] = original.time, original.sequence
            verdicts.has_original_sequence[row] = original.has_sequence
        if window < 0:
            cancelled += [known.at for known in before]
            earlier[of], own = [], []
        elif not near:
            own.append(_Known(time, sequence, window, place, rows.has_sequence))
    kept += [known.at for known in own]
    return np.array(kept, np.intp), np.array(sorted(cancelled), np.intp)
