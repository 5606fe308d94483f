"""The backlog: how many bytes of each entity are accepted and still in the pipeline, and how long they have waited."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

MOST_GROUPS = 4096
"""The maximum number of groups, however long the pipeline is down. More commits share groups."""


@dataclass(slots=True)
class _CommitGroup:
    """A group of consecutive commits. `since` is when the first of them became durable."""

    first: int
    last: int
    since: int
    sizes: Counter[int]


class Backlog:
    """Bytes by entity, from the moment they are appended until their commit is ingested.

    All figures are exact up to `MOST_GROUPS` commits. Beyond that, consecutive commits are grouped, and a group
    counts until its last commit is ingested. Bytes and age are then too large by at most a two-thousandth of the total.
    """

    def __init__(self) -> None:
        self.total = 0
        self._sizes: Counter[int] = Counter()
        self._groups: deque[_CommitGroup] = deque()
        self._width = 1

    def of(self, entity: int) -> int:
        """Return how many bytes of an entity are in the pipeline."""
        return self._sizes.get(entity, 0)

    @property
    def entities(self) -> Set[int]:
        """Return the entities that have something in the pipeline."""
        return self._sizes.keys()

    @property
    def oldest(self) -> int | None:
        """Return when the commit that has waited longest became durable; None if none waits."""
        return self._groups[0].since if self._groups else None

    def add(self, entity: int, size: int) -> None:
        """Count bytes that are being appended."""
        self.total += size
        self._sizes[entity] += size

    def remove(self, sizes: Mapping[int, int]) -> None:
        """Subtract bytes, by entity, that were refused or have left the pipeline."""
        for entity, size in sizes.items():
            self.total -= size
            left = self._sizes[entity] - size
            if left:
                self._sizes[entity] = left
            else:
                del self._sizes[entity]

    def commit(self, number: int, sizes: Iterable[tuple[int, int]], now: int) -> None:
        """Record that bytes which were added before are durable now, in the newest commit.

        `sizes` has pairs (entity, bytes).
        """
        newest = self._groups[-1] if self._groups else None
        if newest is None or number - newest.first >= self._width:
            newest = _CommitGroup(number, number, now, Counter())
            self._groups.append(newest)
        newest.last = number
        for entity, size in sizes:
            newest.sizes[entity] += size
        if len(self._groups) > MOST_GROUPS:
            self._join()

    def add_commit(self, number: int, sizes: Iterable[tuple[int, int]], now: int) -> None:
        """Add bytes that are already durable, in the newest commit. `sizes` has pairs (entity, bytes)."""
        known = list(sizes)
        for entity, size in known:
            self.add(entity, size)
        self.commit(number, known, now)

    def take(self, position: int) -> list[int]:
        """Remove the ingested commits, up to `position`.

        Return the time at which each removed group of commits began to wait.
        """
        since = []
        while self._groups and self._groups[0].last <= position:
            taken = self._groups.popleft()
            since.append(taken.since)
            self.remove(taken.sizes)
        if not self._groups:
            self._width = 1
        return since

    def _join(self) -> None:
        """Halve the number of groups by merging neighbours."""
        self._width *= 2
        before = list(self._groups)
        self._groups = deque(_joined(one, other) for one, other in itertools.zip_longest(before[::2], before[1::2]))


def _joined(one: _CommitGroup, other: _CommitGroup | None) -> _CommitGroup:
    if other is None:
        return one
    return _CommitGroup(one.first, other.last, one.since, one.sizes + other.sizes)


def spread(size: int, rows: Mapping[int, int]) -> list[tuple[int, int]]:
    """Divide `size` bytes among entities in proportion to their rows. Return pairs (entity, bytes)."""
    left, found = sum(rows.values()), []
    for entity, count in rows.items():
        part = size * count // left
        found.append((entity, part))
        size, left = size - part, left - count
    return found
