"""How the inbox is cut: into micro-batches at commits, and a micro-batch into parts of whole shards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from oncebus.entities.catalogue_files import CatalogueFiles
from oncebus.entities.weights import copies_by_topic
from oncebus.inbox import Commit, InboxReader, Place
from oncebus.outbox import OutboxPart
from oncebus.pipeline.weights import weight_of_rows

MOST_ROWS = 200_000
MOST_BYTES = 16 << 20
ROWS_FOR_A_TASK = 4_000
"""Below that a second task costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one task handles of a micro-batch: some shards of its commits. `place` is where the first commit lies."""

    of: OutboxPart
    shards: tuple[int, ...]
    place: Place


class Planner:
    """Cuts what is durable in an inbox. Not to be used by two threads at once."""

    def __init__(
        self, inbox: str | os.PathLike[str], catalogue: str | os.PathLike[str], *, shards: int, tasks: int
    ) -> None:
        self._catalogue = os.fspath(catalogue)
        self._shards = shards
        self._tasks = tasks
        self._reader = InboxReader(inbox)
        # Of the commits behind the newest that was planned.
        self._weights: dict[int, int] = {}

    def wait(self, after: int, seconds: float) -> None:
        """Return once there is a commit behind `after`, or after so many seconds."""
        self._reader.wait(after, seconds)

    def last_commit(self, after: int) -> int:
        """The last commit of a micro-batch that begins behind the commit `after`; `after` if nothing is there yet."""
        for taken in [commit for commit in self._weights if commit <= after]:
            del self._weights[taken]
        return self._reader.plan(after, MOST_ROWS, MOST_BYTES, self._weight)

    def parts(self, first: int, last: int, *, for_all_tasks: bool = False) -> list[Part]:
        """The parts of the commits `first` to `last`; none where there is no commit.

        One for few rows, because a task costs as much as thousands of rows; else, or with `for_all_tasks`, one for each
        task there is. Asked again, it answers the same.
        """
        if first > last:
            return []
        wanted = self._tasks if for_all_tasks else 1 + self._reader.rows(first, last) // ROWS_FOR_A_TASK
        most = min(wanted, self._tasks, self._shards)
        # Alike and of whole shards: then the keys of each are one part of as many in the ledger.
        count = next(number for number in range(most, 0, -1) if self._shards % number == 0)
        place = self._reader.locate(first)
        return [
            Part(OutboxPart(first, last, number, count), tuple(range(number, self._shards, count)), place)
            for number in range(count)
        ]

    def _weight(self, commit: Commit) -> int:
        """How many bytes a commit counts for: more than it has, where a topic makes many copies of its messages."""
        copies = _copies(self._catalogue, commit.catalogue)
        if not copies:
            return commit.length
        if commit.number not in self._weights:
            rows = self._reader.read(commit.number, commit.number, place=commit.place)
            copied = sum(weight_of_rows(batch, copies) for batch in rows)
            self._weights[commit.number] = max(copied, commit.length)
        return self._weights[commit.number]


@lru_cache(maxsize=1024)
def _copies(folder: str, version: int) -> dict[int, int]:
    return copies_by_topic(CatalogueFiles(folder).load(version))
