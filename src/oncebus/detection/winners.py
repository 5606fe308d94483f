"""Decides which rows of one batch are new, and which of them the others repeat.

Rows of a key with one window form a chain that is followed by doubling. Only keys whose rows have different windows are
processed row by row.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from oncebus.detection.values import Index, Numbers, Policy


def winners(key: Index, time: Numbers, window: Numbers, policy: Policy) -> Index:
    """Return the position of each row's original, or the row's own position if it is new.

    Rows are in the order (key, time).
    """
    if policy.keeps_last and len(key):
        # The same in a mirror: the last row becomes the first.
        mirrored = _winners((key[-1] - key)[::-1], -time[::-1], window[::-1], extends=policy.extends)
        return len(key) - 1 - mirrored[::-1]
    return _winners(key, time, window, extends=policy.extends)


def _winners(key: Index, time: Numbers, window: Numbers, *, extends: bool) -> Index:
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
    uniform = _nearest_with_uniform_windows if extends else _winners_of_uniform_windows
    several = _nearest_with_mixed_windows if extends else _winners_of_mixed_windows
    winner[uniform_at] = uniform_at[uniform(key[uniform_at], time[uniform_at], window[uniform_at])]
    winner[mixed_at] = mixed_at[several(key[mixed_at], time[mixed_at], window[mixed_at])]
    return winner


def _nearest_with_uniform_windows(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return, for keys with one window each, the first row less than a window before each row; else the row itself."""
    return lexicographic_search(key, time, key, time - window + 1)


def _nearest_with_mixed_windows(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return the same for keys with several windows."""
    winner = np.arange(len(key))
    current_key = -1
    earlier: dict[int, tuple[list[int], list[int]]] = {}
    for at, (row_key, row_time, row_window) in enumerate(
        zip(key.tolist(), time.tolist(), window.tolist(), strict=True)
    ):
        if row_key != current_key:
            current_key, earlier = row_key, {}
        near = []
        for width, (times, places) in earlier.items():
            first = bisect_right(times, row_time - min(row_window, width))
            if first < len(times):
                near.append((times[first], places[first]))
        if near:
            winner[at] = min(near)[1]
        times, places = earlier.setdefault(row_window, ([], []))
        times.append(row_time)
        places.append(at)
    return winner


def _winners_of_uniform_windows(key: Index, time: Numbers, window: Numbers) -> Index:
    """Return `_winners` for keys with one window each.

    The first row is new, then the first row that comes at least one window later, and so on.
    """
    size = len(key)
    if size == 0:
        return np.empty(0, np.intp)
    successor = np.append(lexicographic_search(key, time, key, time + window), size)
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


def lexicographic_search(key: Index, time: Numbers, wanted_key: Index, wanted_time: Numbers) -> Index:
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
