"""Decides which rows are duplicates, on columns of plain numbers.

Nothing here reads a clock, a file or Spark. `judge` is a function of the rows of one batch, of the memories about their
keys, and of the batch's horizon:

- Rows are judged in the order of time; equal times in the order of `place`, or of `sequence` if rows have no place;
  then of `tie`.
- A row is a duplicate if a row with its key was accepted less than one window away, before it or after it. If the two
  rows have different windows, the shorter one applies. A row exactly one window away is not a duplicate.
- A duplicate is not remembered, so it does not extend the window.
- A key that an earlier batch accepted is forgotten once the horizon has reached its time + its `keep`. A key that the
  batch itself accepts is remembered at least until the batch ends, however old its time is.
- A row without a key is never a duplicate and is never remembered. No row is dropped for being late.
- A row with a negative window is a forget. It gets the verdict that a message in its place would get, under the window
  without the sign, and is never remembered. Rows after it are not compared with rows before it: those of earlier
  batches, and those before it in its own batch.

A `Policy` changes two of these rules:

- If it keeps the last row, the rows of a batch are judged in the reverse order. Rows of earlier batches are accepted
  already, and count as always.
- If duplicates extend the window, every row with a key is remembered, new or not.

The original of a duplicate is the earliest remembered row that makes it a duplicate; of its own batch the latest, if
the policy keeps the last row. Rows from earlier batches come before rows of its own batch.

All times, windows and horizons are whole microseconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oncebus.detection.forgetting import judge_with_forgets, only_remembered
from oncebus.detection.values import (
    Flags,
    Index,
    Keys,
    Memories,
    Numbers,
    Policy,
    Question,
    Recall,
    Rows,
    Tombstones,
    Verdicts,
    expand,
)
from oncebus.detection.winners import lexicographic_search, winners

_FIRST = Policy()

_ANY_TIME = 2**62
"""A time before which, with a minus sign, or after which no row has its time."""


def judge(rows: Rows, recall: Recall, horizon: int, policy: Policy = _FIRST) -> Verdicts:
    """Return the verdicts on the rows of one batch, by the rules at the top of this module.

    A batch with forgets must have the default policy.
    """
    size = len(rows)
    verdicts = Verdicts(
        np.zeros(size, np.bool_),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.bool_),
        np.empty(0, np.intp),
        horizon=horizon,
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
        memories = only_remembered(recall(_question(high, low, time, window, first)), horizon)
        new = _judge(rows, order, _Places(key, time, window), memories, verdicts, policy)
        return replace(verdicts, accepted=order[new])
    forgets = np.unique(key[is_forget])
    question = _question(high, low, time, np.abs(window), first)
    # A forget concerns all that is remembered about its key, at any time.
    question.earliest[forgets], question.latest[forgets] = -_ANY_TIME, _ANY_TIME
    memories = only_remembered(recall(question), horizon)
    is_special = np.isin(key, forgets)
    plain, special = np.flatnonzero(~is_special), np.flatnonzero(is_special)
    of_special = np.isin(memories.key, forgets)
    places = _Places(key[plain], time[plain], window[plain])
    new = plain[_judge(rows, order[plain], places, memories.take(~of_special), verdicts, _FIRST)]
    memories = memories.take(of_special)
    kept, cancelled = judge_with_forgets(rows, order[special], key[special], memories, verdicts)
    gone = memories.take(cancelled)
    tombstones = Tombstones(
        question.high[gone.key],
        question.low[gone.key],
        gone.time,
        -gone.window,
        gone.keep,
        gone.sequence,
        bool(gone.has_sequence.all()),
    )
    accepted = order[np.sort(np.concatenate([new, special[kept]]))]
    return replace(verdicts, accepted=accepted, tombstones=tombstones if len(tombstones) else None)


class _Places(NamedTuple):
    """The key, time and window of each row, in the order of keys and times."""

    key: Index
    time: Numbers
    window: Numbers


def _judge(rows: Rows, order: Index, places: _Places, memories: Memories, verdicts: Verdicts, policy: Policy) -> Index:
    """Write the verdicts on rows without forgets, given in `order`. Return the places in `order` to remember."""
    key, time, window = places
    blocked, by = _blocked_by_memories(key, time, window, memories)
    dropped = order[blocked]
    verdicts.is_duplicate[dropped] = True
    verdicts.original_time[dropped] = memories.time[by]
    verdicts.original_sequence[dropped] = memories.sequence[by]
    verdicts.has_original_sequence[dropped] = memories.has_sequence[by]

    free = np.ones(len(order), np.bool_)
    free[blocked] = False
    # If duplicates extend the window, rows are compared with duplicates of earlier batches too.
    free_at = np.arange(len(order)) if policy.extends else np.flatnonzero(free)
    winner = winners(key[free_at], time[free_at], window[free_at], policy)
    lost = winner != np.arange(len(free_at))
    if policy.extends:
        lost &= free
    dropped, originals = order[free_at[lost]], order[free_at[winner[lost]]]
    verdicts.is_duplicate[dropped] = True
    verdicts.original_time[dropped] = rows.time[originals]
    verdicts.original_sequence[dropped] = rows.sequence[originals]
    verdicts.has_original_sequence[dropped] = rows.has_sequence
    return free_at if policy.extends else np.asarray(free_at[~lost])


def _in_order(rows: Rows) -> Index:
    """Return the positions of the rows that have a key, in the order (high, low, time, place or sequence, tie)."""
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
    place = rows.sequence if rows.place is None else rows.place
    columns = (place[some], rows.time[some], rows.low[some], rows.high[some])
    sorted_at = np.lexsort(columns)
    order[at] = some = some[sorted_at]
    met = np.logical_and.reduce([column[sorted_at[1:]] == column[sorted_at[:-1]] for column in columns])
    _break_ties(order, at, some, met, rows)
    return order


def _break_ties(order: Index, at: Index, some: Index, met: Flags, rows: Rows) -> None:
    """Sort each group of neighbouring rows with equal key, time and place by `tie`, in place in `order`."""
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
    begin = lexicographic_search(key, time, memories.key, memories.time - memories.window + 1)
    end = lexicographic_search(key, time, memories.key, memories.time + memories.window)
    row, memory = expand(begin, end)
    near = np.abs(time[row] - memories.time[memory]) < np.minimum(window[row], memories.window[memory])
    row, memory = row[near], memory[near]
    best_first = np.lexsort((memories.sequence[memory], memories.time[memory], row))
    row, memory = row[best_first], memory[best_first]
    is_best = np.ones(len(row), np.bool_)
    is_best[1:] = row[1:] != row[:-1]
    return known[row[is_best]], memory[is_best]
