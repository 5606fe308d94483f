"""Chooses the runs to merge or rewrite, and merges them, with pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oncebus.detection import NO_SEQUENCE, find_uncancelled
from oncebus.ledger.run import Entries

FAN = 8
"""The number of neighbouring runs of similar size that are merged into one."""

FULL = 1_000_000
"""A run with this many entries is not merged any more. So a merge has at most FAN times as many entries."""

LEAST_REWRITTEN = 10_000
"""A run with fewer entries is not worth a rewrite: merging leaves few such runs, and also drops forgotten entries."""

MOST_RUNS = 64
"""With more runs than this that are not full, the cheapest merge is made regardless of the tiers."""


def choose_merge(sizes: Sequence[int], fan: int = FAN, full: int = FULL) -> range | None:
    """Return which runs to merge next, given the sizes of the mergeable runs from the oldest to the newest.

    Runs fall into tiers by size, each tier `fan` times the one below. When a tier has `fan` runs without a run of a
    higher tier between them, they are merged into one run, together with smaller runs between them. So an entry is
    rewritten about once per tier, and few runs of each tier remain. Full runs are not merged.
    """
    tiers = [_tier(size, fan) for size in sizes]
    for tier in sorted(set(tiers)):
        found: list[int] = []
        for at, size in enumerate(sizes):
            if tiers[at] > tier or size >= full:
                found = []
            elif tiers[at] == tier:
                found.append(at)
                if len(found) == fan:
                    return range(found[0], at + 1)
    if sum(size < full for size in sizes) > MOST_RUNS:
        # Alternating sizes can leave many small runs between large ones. Full runs do not count: a long window has any
        # number of them, and to merge what comes after them each time would write it again and again.
        stretches = [range(at, at + fan) for at in range(len(sizes) - fan + 1)]
        mergeable = [stretch for stretch in stretches if all(sizes[at] < full for at in stretch)]
        return min(mergeable, key=lambda stretch: sum(sizes[at] for at in stretch), default=None)
    return None


def choose_rewrite(runs: Sequence[tuple[int, int]], horizon: int, least: int = LEAST_REWRITTEN) -> int | None:
    """Return which run to rewrite next without its forgotten entries.

    `runs` has (size, mostly_forgotten_from) of each run.

    Chooses the largest run that is mostly forgotten. A rewrite leaves at most a quarter of the entries. So all rewrites
    of a run together write at most a third of its size, and no large run stays more than four times the size of its
    live entries for long.
    """
    sparse = [(size, at) for at, (size, sparse_from) in enumerate(runs) if size >= least and sparse_from <= horizon]
    return max(sparse)[1] if sparse else None


def merge(runs: Sequence[Entries], horizon: int) -> Entries:
    """Return the entries of all the runs together, without those that are forgotten at the horizon or cancelled.

    Every batch that may still run must have reached this horizon, because a repeated batch must find the same keys
    again.
    """
    everything = _concatenate([run for run in runs if len(run)] or runs[:1]).remembered_at(horizon)
    if (everything.spans[:, :1] < 0).any():
        everything = _without_cancelled(everything)
    # The input consists of sorted slices, which a stable sort exploits.
    order = np.argsort(everything.high, kind="stable")
    high = everything.high[order]
    same = high[1:] == high[:-1]
    if same.any():
        repeated = np.zeros(len(high), np.bool_)
        repeated[1:] = same
        repeated[:-1] |= same
        some = order[repeated]
        order[repeated] = some[np.lexsort((everything.time[some], everything.low[some], everything.high[some]))]
    return everything.take(order)


def _without_cancelled(entries: Entries) -> Entries:
    """Return the entries without pairs of a tombstone and an entry that it cancels, except for one pair.

    A tombstone stays if its entry is in another run. The pair that is forgotten last stays, so that the merged run
    outlives all entries that it has cancelled: a task that stalled may publish the run of such an entry late, and the
    entry would count again if nothing covered it.
    """
    size, sequence = len(entries), entries.sequence
    others = [
        entries.time,
        np.full(size, NO_SEQUENCE, np.int64) if sequence is None else sequence,
        np.broadcast_to(entries.keep(), size),
    ]
    window = entries.window()
    left = find_uncancelled(window, [entries.high, entries.low], others)
    cancelled = np.flatnonzero(~left)
    if len(cancelled):
        last = cancelled[np.argmax((entries.time + entries.keep())[cancelled])]
        columns = (entries.high, entries.low, *others, np.abs(window))
        alike = np.logical_and.reduce([column[cancelled] == column[last] for column in columns])
        is_tombstone = window[cancelled] < 0
        left[[cancelled[alike & is_tombstone][0], cancelled[alike & ~is_tombstone][0]]] = True
    return entries.take(left).without_unused_spans()


def _concatenate(runs: Sequence[Entries]) -> Entries:
    sequence = None
    if any(run.sequence is not None for run in runs):
        missing = [np.full(len(run), NO_SEQUENCE, np.int64) if run.sequence is None else run.sequence for run in runs]
        sequence = np.concatenate(missing)
    spans, span_of = runs[0].spans, None
    if any(run.span_of is not None or not np.array_equal(run.spans, spans) for run in runs):
        spans, new_number = np.unique(np.concatenate([run.spans for run in runs]), axis=0, return_inverse=True)
        first = np.cumsum([0, *(len(run.spans) for run in runs)])
        numbers = [
            new_number.reshape(-1)[begin + (np.zeros(len(run), np.intp) if run.span_of is None else run.span_of)]
            for begin, run in zip(first, runs, strict=False)
        ]
        span_of = np.concatenate(numbers)
    return Entries(
        np.concatenate([run.high for run in runs]),
        np.concatenate([run.low for run in runs]),
        np.concatenate([run.time for run in runs]),
        sequence,
        spans,
        span_of,
        all(run.is_numbered for run in runs),
    )


def _tier(size: int, fan: int) -> int:
    tier = 0
    while size >= fan:
        size //= fan
        tier += 1
    return tier
