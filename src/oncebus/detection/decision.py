"""Decides which rows are duplicates, on columns of plain numbers.

Nothing here reads a clock, a file or Spark. `judge` is a function of the rows of one batch, of the memories about their
keys, and of the batch's horizon:

- Rows are judged in the order of time; equal times in the order of `sequence`, then of `tie`.
- A row is a duplicate if a row with its key was accepted less than one window away, before it or after it. If the two
  rows have different windows, the shorter one applies. A row exactly one window away is not a duplicate.
- A duplicate is not remembered, so it does not extend the window.
- A key that an earlier batch accepted is forgotten once the horizon has reached its time + its `keep`. A key that the
  batch itself accepts is remembered at least until the batch ends, however old its time is.
- A row without a key is never a duplicate and is never remembered. No row is dropped for being late.
- A row with a negative window is a forget. It gets the verdict that a message in its place would get, under the window
  without the sign, and is never remembered. Rows after it are not compared with rows before it: those of earlier
  batches, and those before it in its own batch.

The original of a duplicate is the earliest accepted row that makes it a duplicate. Rows from earlier batches come
before rows of its own batch.

All times, windows and horizons are whole microseconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oncebus.detection.forgetting import judge_with_forgets, remembered
from oncebus.detection.values import (
    Flags,
    Index,
    Keys,
    Memories,
    Numbers,
    Question,
    Recall,
    Rows,
    Tombstones,
    Verdicts,
    expand,
)

_ANY_TIME = 2**62
"""A time before which, with a minus sign, or after which no row has its time."""


def judge(rows: Rows, recall: Recall, horizon: int) -> Verdicts:
    """Return the verdicts on the rows of one batch, by the rules at the top of this module."""
    size = len(rows)
    verdicts = Verdicts(
        np.zeros(size, np.bool_), np.zeros(size, np.int64), np.zeros(size, np.int64), np.empty(0, np.intp)
    )
    order = _in_order(rows)
    high, low = rows.high[order], rows.low[order]
    time, window = rows.time[order], rows.window[order]
    starts_key = np.ones(len(order), np.bool_)
    starts_key[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    first = np.flatnonzero(starts_key)
    key = np.cumsum(starts_key) - 1

    is_forget = window < 0
    if not is_forget.any():
        memories = remembered(recall(_question(high, low, time, window, first)), horizon)
        new = _judge(rows, order, _Places(key, time, window), memories, verdicts)
        return replace(verdicts, accepted=order[new])
    forgets = np.unique(key[is_forget])
    question = _question(high, low, time, np.abs(window), first)
    # A forget concerns all that is remembered about its key, at any time.
    question.earliest[forgets], question.latest[forgets] = -_ANY_TIME, _ANY_TIME
    memories = remembered(recall(question), horizon)
    is_special = np.isin(key, forgets)
    plain, special = np.flatnonzero(~is_special), np.flatnonzero(is_special)
    of_special = np.isin(memories.key, forgets)
    places = _Places(key[plain], time[plain], window[plain])
    new = plain[_judge(rows, order[plain], places, memories.take(~of_special), verdicts)]
    memories = memories.take(of_special)
    kept, cancelled = judge_with_forgets(rows, order[special], key[special], memories, verdicts)
    gone = memories.take(cancelled)
    tombstones = Tombstones(
        question.high[gone.key], question.low[gone.key], gone.time, -gone.window, gone.keep, gone.sequence
    )
    accepted = order[np.sort(np.concatenate([new, special[kept]]))]
    return replace(verdicts, accepted=accepted, tombstones=tombstones if len(tombstones) else None)


class _Places(NamedTuple):
    """The key, time and window of each row, in the order of keys and times."""

    key: Index
    time: Numbers
    window: Numbers


def _judge(rows: Rows, order: Index, places: _Places, memories: Memories, verdicts: Verdicts) -> Index:
    """Write the verdicts on rows without forgets, given in `order`. Return the places in `order` of the new rows."""
    key, time, window = places
    blocked, by = _blocked_by_memories(key, time, window, memories)
    dropped = order[blocked]
    verdicts.is_duplicate[dropped] = True
    verdicts.original_time[dropped] = memories.time[by]
    verdicts.original_sequence[dropped] = memories.sequence[by]

    free = np.ones(len(order), np.bool_)
    free[blocked] = False
    free_at = np.flatnonzero(free)
    winner = _winners(key[free_at], time[free_at], window[free_at])
    lost = winner != np.arange(len(free_at))
    dropped, originals = order[free_at[lost]], order[free_at[winner[lost]]]
    verdicts.is_duplicate[dropped] = True
    verdicts.original_time[dropped] = rows.time[originals]
    verdicts.original_sequence[dropped] = rows.sequence[originals]
    return np.asarray(free_at[~lost])


def _in_order(rows: Rows) -> Index:
    """Return the positions of the rows that have a key, in the order (high, low, time, sequence, tie)."""
    with_key = np.flatnonzero(rows.has_key)
    high = rows.high[with_key]
    order = with_key[np.argsort(high)]
    # Few keys repeat within a batch. So one sort by half the key does nearly all the work, and only repeats need the
    # full order.
    sorted_high = rows.high[order]
    same = sorted_high[1:] == sorted_high[:-1]
    repeated = np.zeros(len(order), np.bool_)
    repeated[1:] = same
    repeated[:-1] |= same
    at = np.flatnonzero(repeated)
    some = order[at]
    columns = (rows.sequence[some], rows.time[some], rows.low[some], rows.high[some])
    sorted_at = np.lexsort(columns)
    order[at] = some = some[sorted_at]
    met = np.logical_and.reduce([column[sorted_at[1:]] == column[sorted_at[:-1]] for column in columns])
    _break_ties(order, at, some, met, rows)
    return order


def _break_ties(order: Index, at: Index, some: Index, met: Flags, rows: Rows) -> None:
    """Sort each group of neighbouring rows with equal key, time and sequence by `tie`, in place in `order`."""
    tied = np.zeros(len(some), np.bool_)
    tied[1:] = met
    tied[:-1] |= met
    places = np.flatnonzero(tied)
    if len(places) == 0:
        return
    group = np.cumsum(~np.append(False, met))[places]
    order[at[places]] = some[places][np.lexsort((rows.tie(some[places]), group))]


def _question(high: Keys, low: Keys, time: Numbers, window: Numbers, first: Index) -> Question:
    """Return the question about rows in the order (high, low, time). The rows of each key begin at `first`."""
    if len(first) == 0:
        return Question(high, low, time, time)
    last = np.append(first[1:], len(time)) - 1
    # A row conflicts only with entries less than its own window away, even if an entry has a longer window.
    longest = np.maximum.reduceat(window, first)
    return Question(high[first], low[first], time[first] - longest + 1, time[last] + longest - 1)


def _blocked_by_memories(key: Index, time: Numbers, window: Numbers, memories: Memories) -> tuple[Index, Index]:
    """Return the positions of the rows that are duplicates of memories, and for each the position of its original.

    The rows must be in the order (key, time).
    """
    none = np.empty(0, np.intp)
    if len(memories.key) == 0:
        return none, none
    asked = np.zeros(key[-1] + 1, np.bool_)
    asked[memories.key] = True
    known = np.flatnonzero(asked[key])
    key, time, window = key[known], time[known], window[known]
    # Only rows less than the window of the memory away can conflict with it.
    begin = _lexicographic_search(key, time, memories.key, memories.time - memories.window + 1)
    end = _lexicographic_search(key, time, memories.key, memories.time + memories.window)
    row, memory = expand(begin, end)
    near = np.abs(time[row] - memories.time[memory]) < np.minimum(window[row], memories.window[memory])
    row, memory = row[near], memory[near]
    best_first = np.lexsort((memories.sequence[memory], memories.time[memory], row))
    row, memory = row[best_first], memory[best_first]
    is_best = np.ones(len(row), np.bool_)
    is_best[1:] = row[1:] != row[:-1]
    return known[row[is_best]], memory[is_best]


def _winners(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return the position of each row's original, or the row's own position if it is new.

    Rows are in the order (key, time).
    """
    size = len(key)
    winner = np.arange(size)
    same = key[1:] == key[:-1]
    repeated = np.zeros(size, np.bool_)
    repeated[1:] = same
    repeated[:-1] |= same
    at = np.flatnonzero(repeated)
    if len(at) == 0:
        return winner
    changes = same & (window[1:] != window[:-1])
    mixed = np.isin(key[at], key[1:][changes])
    uniform_at, mixed_at = at[~mixed], at[mixed]
    winner[uniform_at] = uniform_at[_winners_of_uniform_windows(key[uniform_at], time[uniform_at], window[uniform_at])]
    winner[mixed_at] = mixed_at[_winners_of_mixed_windows(key[mixed_at], time[mixed_at], window[mixed_at])]
    return winner


def _winners_of_uniform_windows(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return `_winners` for keys with one window each.

    The first row is new, then the first row that comes at least one window later, and so on.
    """
    size = len(key)
    if size == 0:
        return np.empty(0, np.intp)
    successor = np.append(_lexicographic_search(key, time, key, time + window), size)
    # One past the last row means "none". This includes the case that the next row belongs to another key.
    next_key = np.append(key, -1)[successor]
    successor[next_key != np.append(key, -1)] = size
    is_new = np.zeros(size + 1, np.bool_)
    is_new[0] = True
    is_new[1:-1] = key[1:] != key[:-1]
    # Each round doubles the length of the steps, so a chain of n new rows takes log n rounds.
    while (reached := successor[is_new]).min() < size:
        is_new[reached] = True
        successor = successor[successor]
    return np.maximum.accumulate(np.where(is_new[:-1], np.arange(size), 0))


def _winners_of_mixed_windows(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return `_winners` for keys with several windows.

    This is a plain loop, because such keys are rare and each verdict depends on the previous one.
    """
    winner = np.arange(len(key))
    current_key = -1
    newest: dict[int, tuple[int, int]] = {}
    for at, (row_key, row_time, row_window) in enumerate(
        zip(key.tolist(), time.tolist(), window.tolist(), strict=True)
    ):
        if row_key != current_key:
            current_key, newest = row_key, {}
        # Of the rows accepted with one window, only the newest can be near enough. Drop those whose window has ended.
        # Few are left, because accepted rows are at least the shorter of their windows apart.
        newest = {width: entry for width, entry in newest.items() if row_time - entry[0] < width}
        near = [entry for entry in newest.values() if row_time - entry[0] < row_window]
        if near:
            winner[at] = min(near)[1]
        else:
            newest[row_window] = (row_time, at)
    return winner


def _lexicographic_search(key: Index, time: Numbers, wanted_key: Index, wanted_time: Numbers) -> Index:
    """Return, for each wanted (key, time), the position of the first sorted (key, time) that is not before it."""
    wanted = len(wanted_key)
    keys = np.concatenate([wanted_key, key])
    times = np.concatenate([wanted_time, time])
    # The sort is stable, so a wanted pair comes before equal pairs.
    order = np.lexsort((times, keys))
    is_wanted = order < wanted
    position = np.empty(wanted, np.intp)
    position[order[is_wanted]] = np.cumsum(~is_wanted)[is_wanted]
    return position
