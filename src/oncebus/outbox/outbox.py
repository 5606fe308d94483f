"""The entries of an outbox, in the order of their commits.

A micro-batch is cut at commits, and its entry is complete before the next is begun. So the newest complete entry tells
how far a query had come, and the query that follows begins behind it. The reader leaves the entry that it took last in
its place, for that.

Tasks may outlive their query. So each query has a folder of its own in the outbox, `drafts-` and a fresh name: a part
is written there and renamed into the outbox. The next query deletes that folder before it looks what is complete. From
then on nothing of the old one can appear any more, neither among its own parts nor as an entry that it did not see.

The file `kernel` is signed by the query, for those who wait for parts (`oncebus.watching`).
"""

from __future__ import annotations

import errno
import os
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncebus.files import TEMPORARY, make_folder
from oncebus.outbox.part import Batch, OutboxError, OutboxPart, read_part, write_part
from oncebus.watching import Watch, sign

_DRAFTS = "drafts-"
_SIGNATURE = "kernel"
_ATTEMPTS = 1000


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


class Begun(NamedTuple):
    """Where a query begins: behind the newest complete entry, if any; and the folder that its tasks write in."""

    last: Entry | None
    drafts: str


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

    def begin(self, *, is_local: bool = False) -> Begun:
        """Let a query begin. To be called while no other runs; what tasks of an earlier one still write is refused.

        What is incomplete is deleted: it will never be complete, and must not be taken for a part of what the query
        makes. `is_local` tells that all tasks of the query run on this machine: who waits for parts need not poll.
        """
        try:
            self._end_drafts()
            complete = self._complete()
            for part in self._parts():
                if (part.first, part.last, part.parts) not in complete:
                    self._delete(part)
            drafts = os.path.join(self.folder, _DRAFTS + uuid.uuid4().hex)
            make_folder(drafts)
            sign(os.path.join(self.folder, _SIGNATURE), is_local=is_local)
        except OSError as error:
            raise OutboxError(f"Outbox '{self.folder}' cannot be written: {error.strerror}") from error
        return Begun(self.newest(), drafts)

    def watch(self) -> Watch:
        """Waits until a part appears."""
        return Watch(self.folder, os.path.join(self.folder, _SIGNATURE))

    def newest(self) -> Entry | None:
        """The complete entry that goes furthest; None where none is complete."""
        if not (complete := self._complete()):
            return None
        first, last, parts = max(complete, key=lambda entry: entry[1])
        return Entry(self.folder, first - 1, first, last, parts)

    def goes_on(self, after: int) -> int:
        """How far complete entries go on behind the commit `after` without a gap; `after` where none does."""
        complete = self._complete()
        while (entry := _best(complete, self.folder, after)) is not None:
            after = entry.last
        return after

    def rewrite(self, change: Callable[[pa.Table], pa.Table], batch: Batch | None = None) -> int:
        """Change the rows of all complete entries, for a repair; how many rows are in new parts. Nobody may be at work.

        `change` gives other rows in the place of some, or the same object where nothing is to be changed. With `batch`
        all entries say that it made them. A part is replaced at once: killed at any instant, this can be called again.
        Raises `OutboxError`.
        """
        drafts, rows = self.begin().drafts, 0
        for part in self._parts():
            before, maker = read_part(self.folder, part)
            after = change(before)
            if after is not before or batch not in (None, maker):
                write_part(drafts, part, after, batch or maker)
                rows += after.num_rows
        return rows

    def delete_up_to(self, commit: int) -> None:
        """Delete all entries, complete or not, that hold nothing behind a commit: it must have been taken durably."""
        for part in self._parts():
            if part.last <= commit:
                self._delete(part)

    def _end_drafts(self) -> None:
        """Delete what earlier queries were writing in. A file that vanishes meanwhile has become a part."""
        folder = Path(self.folder)
        for drafts in [*folder.glob(f"{_DRAFTS}*")]:
            for attempt in range(_ATTEMPTS):
                for draft in drafts.iterdir():
                    draft.unlink(missing_ok=True)
                try:
                    drafts.rmdir()
                    break
                except OSError as error:
                    # A task has begun another one.
                    if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                        raise
        for unfinished in [*folder.glob(f"{TEMPORARY}*")]:
            unfinished.unlink(missing_ok=True)

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
