"""What was accepted and has not come out of the pipeline yet: how many bytes of which entity, and since when."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

MOST_STRETCHES = 4096
"""As many are told apart, however long the pipeline stands still: with more commits, several share one."""


@dataclass(slots=True)
class _Stretch:
    """Commits in a row. `since` is when the first of them became durable."""

    first: int
    last: int
    since: int
    sizes: Counter[int]


class Backlog:
    """Bytes by entity, from the moment they are appended until their commit has been taken.

    Up to `MOST_STRETCHES` commits everything is exact. Beyond, commits are told apart only in stretches: one counts
    until the last of its commits is taken, so that bytes and age are too large by a two-thousandth of all at most.
    """

    def __init__(self) -> None:
        self.total = 0
        self._sizes: Counter[int] = Counter()
        self._stretches: deque[_Stretch] = deque()
        self._width = 1

    def of(self, entity: int) -> int:
        """How many bytes of an entity are on their way."""
        return self._sizes.get(entity, 0)

    @property
    def entities(self) -> Set[int]:
        """Those that have something on its way."""
        return self._sizes.keys()

    @property
    def oldest(self) -> int | None:
        """When the commit became durable that has waited longest; None where none waits."""
        return self._stretches[0].since if self._stretches else None

    def add(self, entity: int, size: int) -> None:
        """These bytes are being appended."""
        self.total += size
        self._sizes[entity] += size

    def remove(self, sizes: Mapping[int, int]) -> None:
        """These bytes, by entity, were not accepted, or have come out."""
        for entity, size in sizes.items():
            self.total -= size
            left = self._sizes[entity] - size
            if left:
                self._sizes[entity] = left
            else:
                del self._sizes[entity]

    def commit(self, number: int, sizes: Iterable[tuple[int, int]], now: int) -> None:
        """(entity, bytes) that were added before are durable, in the newest commit."""
        newest = self._stretches[-1] if self._stretches else None
        if newest is None or number - newest.first >= self._width:
            newest = _Stretch(number, number, now, Counter())
            self._stretches.append(newest)
        newest.last = number
        for entity, size in sizes:
            newest.sizes[entity] += size
        if len(self._stretches) > MOST_STRETCHES:
            self._join()

    def add_commit(self, number: int, sizes: Iterable[tuple[int, int]], now: int) -> None:
        """(entity, bytes) are durable, in the newest commit, and were not added before."""
        known = list(sizes)
        for entity, size in known:
            self.add(entity, size)
        self.commit(number, known, now)

    def take(self, position: int) -> list[int]:
        """Commits up to this one have come out. Answers since when each of them, or of their stretches, has waited."""
        since = []
        while self._stretches and self._stretches[0].last <= position:
            taken = self._stretches.popleft()
            since.append(taken.since)
            self.remove(taken.sizes)
        if not self._stretches:
            self._width = 1
        return since

    def _join(self) -> None:
        """Make one stretch of every two."""
        self._width *= 2
        before = list(self._stretches)
        self._stretches = deque(_joined(one, other) for one, other in itertools.zip_longest(before[::2], before[1::2]))


def _joined(one: _Stretch, other: _Stretch | None) -> _Stretch:
    if other is None:
        return one
    return _Stretch(one.first, other.last, one.since, one.sizes + other.sizes)


def spread(size: int, rows: Mapping[int, int]) -> list[tuple[int, int]]:
    """(entity, bytes) of bytes that entities share, by how many rows each has."""
    left, found = sum(rows.values()), []
    for entity, count in rows.items():
        part = size * count // left
        found.append((entity, part))
        size, left = size - part, left - count
    return found
