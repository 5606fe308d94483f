"""The entries of an outbox, in the order of their commits.

A micro-batch is cut at commits, and its entry is complete before the next is begun. So the newest complete entry tells
how far a query had come, and the query that follows begins behind it. The reader leaves the entry that it took last in
its place, for that.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from oncebus.files import delete_abandoned
from oncebus.outbox.part import Batch, OutboxError, OutboxPart, read_part


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete entry, for the commits behind `after` up to `last`."""

    folder: str
    after: int
    first: int
    last: int
    parts: int

    def rows(self) -> pa.Table:
        """Its rows in the order of position, then destination (none last), without what was taken before.

        They lie in the maps of the files or in memory: deleting the entry does not touch them. Raises `OutboxDamaged`.
        """
        tables = [
            read_part(self.folder, OutboxPart(self.first, self.last, part, self.parts))[0] for part in range(self.parts)
        ]
        table = pa.concat_tables(tables)
        if self.first <= self.after:
            table = table.filter(pc.greater(table["commit"], self.after))
        return table.sort_by([("position", "ascending"), ("destination", "ascending")])

    def batch(self) -> Batch:
        """What made it. Raises `OutboxDamaged`."""
        return read_part(self.folder, OutboxPart(self.first, self.last, 0, self.parts))[1]


class Outbox:
    """The reader of an outbox; the folder need not exist yet."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)

    def next_entry(self, after: int) -> Entry | None:
        """The entry to take once all commits up to `after` have been taken; None if it is not complete yet.

        Of several the one that begins behind `after` exactly, else nearest before it; of these the one that ends
        first; of these the one with the fewest parts. Costs one listing of the folder.
        """
        return _best(self._complete(), self.folder, after)

    def begin(self) -> Entry | None:
        """The newest complete entry, behind which a query begins; None if there is none.

        What is incomplete is deleted: a query that has ended left it, and it must not be taken for a part of what the
        next one makes. To be called while no query runs.
        """
        complete = self._complete()
        for part in self._parts():
            if (part.first, part.last, part.parts) not in complete:
                self._delete(part)
        if not complete:
            return None
        first, last, parts = max(complete, key=lambda entry: entry[1])
        return Entry(self.folder, first - 1, first, last, parts)

    def delete_up_to(self, commit: int) -> None:
        """Delete all entries, complete or not, that hold nothing behind a commit: it must have been taken durably."""
        for part in self._parts():
            if part.last <= commit:
                self._delete(part)

    def sweep(self, age: int, now: int) -> list[str]:
        """Delete unfinished files older than `age`, of tasks that were killed; their names. In microseconds."""
        return delete_abandoned(self.folder, now - age) if os.path.isdir(self.folder) else []

    def _delete(self, part: OutboxPart) -> None:
        path = Path(self.folder, part.name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutboxError(f"Outbox part '{path}' cannot be deleted: {error.strerror}") from error

    def _parts(self) -> list[OutboxPart]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OutboxError(f"Outbox '{self.folder}' cannot be read: {error.strerror}") from error
        return [part for part in map(OutboxPart.parse, names) if part is not None]

    def _complete(self) -> list[tuple[int, int, int]]:
        found = Counter((part.first, part.last, part.parts) for part in self._parts() if part.part < part.parts)
        return [entry for entry, count in found.items() if count == entry[2]]


def _best(complete: list[tuple[int, int, int]], folder: str, after: int) -> Entry | None:
    fitting = [entry for entry in complete if entry[0] <= after + 1 <= entry[1]]
    if not fitting:
        return None
    first, last, parts = min(fitting, key=lambda entry: (-entry[0], entry[1], entry[2]))
    return Entry(folder, after, first, last, parts)
