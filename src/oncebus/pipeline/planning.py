"""Cuts the inbox into micro-batches of whole commits, and a micro-batch into parts of whole shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from oncebus.engine.inbox import Commit, InboxReader, Place
from oncebus.engine.outbox import OutboxPart
from oncebus.model.entities.catalogue_files import CatalogueFiles
from oncebus.model.entities.weights import LIGHT, TopicCost, costs_by_topic, weight
from oncebus.model.messages import LogRow

MOST_ROWS = 200_000
MOST_BYTES = 16 << 20
ROWS_FOR_A_TASK = 4_000
"""With fewer rows, a second task costs more than it saves."""

_ROW_BYTES = 100
"""The weight of a row without its head and body."""


@dataclass(frozen=True, slots=True)
class Part:
    """One task's part of a micro-batch: some shards of its commits.

    `place` is where the first commit begins in the inbox.
    """

    of: OutboxPart
    shards: tuple[int, ...]
    place: Place


class Planner:
    """Cuts the durable commits of an inbox. Only one thread may use it at a time."""

    def __init__(
        self, inbox: str | os.PathLike[str], catalogue: str | os.PathLike[str], *, shards: int, tasks: int
    ) -> None:
        self._catalogue = os.fspath(catalogue)
        self._shards = shards
        self._tasks = tasks
        self._reader = InboxReader(inbox)
        # The weights of the commits that are not planned yet, by commit number.
        self._weights: dict[int, int] = {}

    def wait(self, after: int, seconds: float) -> None:
        """Return as soon as there is a commit after `after`, or when the time is over."""
        self._reader.wait(after, seconds)

    def last_commit(self, after: int) -> int:
        """Return the last commit of the micro-batch that begins after `after`, or `after` if there is none."""
        for taken in [commit for commit in self._weights if commit <= after]:
            del self._weights[taken]
        return self._reader.plan(after, MOST_ROWS, MOST_BYTES, self._weight)

    def parts(self, first: int, last: int, *, for_all_tasks: bool = False) -> list[Part]:
        """Return the parts of the commits `first` to `last`; none if there are no commits.

        A small batch has one part, because a task costs as much as thousands of rows. A large batch, or any batch with
        `for_all_tasks`, has one part for each task. The same arguments always give the same parts, since Spark may
        repeat a batch.
        """
        if first > last:
            return []
        wanted = self._tasks if for_all_tasks else 1 + self._reader.rows(first, last) // ROWS_FOR_A_TASK
        most = min(wanted, self._tasks, self._shards)
        # All parts have the same number of shards. Then the keys of a part here are exactly the keys of a part in the
        # ledger.
        count = next(number for number in range(most, 0, -1) if self._shards % number == 0)
        place = self._reader.locate(first)
        return [
            Part(OutboxPart(first, last, number, count), tuple(range(number, self._shards, count)), place)
            for number in range(count)
        ]

    def _weight(self, commit: Commit) -> int:
        """Return the weight of a commit in bytes: more than its length if a topic does much with its messages."""
        costs = _costs(self._catalogue, commit.catalogue)
        if not costs:
            return commit.length
        if commit.number not in self._weights:
            rows = self._reader.read(commit.number, commit.number, place=commit.place)
            self._weights[commit.number] = max(_weight_of_rows(rows, costs), commit.length)
        return self._weights[commit.number]


def _weight_of_rows(rows: Iterable[LogRow], costs: Mapping[int, TopicCost]) -> int:
    """Return the weight of rows of the inbox in bytes, given the costs by topic id."""
    messages, sizes = Counter[int](), Counter[int]()
    for row in rows:
        messages[row.entity] += 1
        sizes[row.entity] += _ROW_BYTES + len(row.head) + len(row.body or b"")
    return sum(weight(count, sizes[entity], costs.get(entity, LIGHT)) for entity, count in messages.items())


@lru_cache(maxsize=1024)
def _costs(folder: str, version: int) -> dict[int, TopicCost]:
    return costs_by_topic(CatalogueFiles(folder).load(version))
