"""Reads the entries of an outbox, in the order of their commits.

A micro-batch is cut at commits, and its entry is complete before the next micro-batch begins. So the newest complete
entry says how far a query came, and the next query begins after it. For this, the reader leaves the entry that it
ingested last in place.

Tasks may outlive their query. So each query has its own folder in the outbox, `drafts-` and a random suffix. A part is
written there and then renamed into the outbox. The next query deletes that folder before it checks which entries are
complete. From then on, tasks of the old query can publish nothing: neither a part among the new ones, nor an entry that
the new query did not see.

The query writes the id of its kernel to the file `kernel`, for processes that wait for parts
(`oncebus.values.watching`).
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

from oncebus.engine.outbox.part import Batch, OutboxError, OutboxPart, read_part, write_part
from oncebus.model.messages import Result, place_of
from oncebus.values import disk
from oncebus.values.watching import Watch, sign

_DRAFTS = "drafts-"
_SIGNATURE = "kernel"
_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete entry. Its commits after `after` and up to `last` are not ingested yet."""

    folder: str
    after: int
    first: int
    last: int
    parts: int

    def rows(self) -> list[Result]:
        """Return the results that are not ingested yet, ordered by position, then by destination.

        Those without a destination come last. Raises `OutboxDamaged`.
        """
        results: list[Result] = []
        for part in range(self.parts):
            results += read_part(self.folder, OutboxPart(self.first, self.last, part, self.parts))[0]
        if self.first <= self.after:
            results = [result for result in results if result.row.commit > self.after]
        results.sort(key=place_of)
        return results

    def sync(self) -> None:
        """Make the entry durable. A task shows its part a moment before it has synced the folder.

        What is made durable because of an entry must not outlive it.
        """
        disk.sync(self.folder)

    def published(self) -> int:
        """Return when its last part was written, in microseconds since 1970, by the clock of the file system."""
        names = [OutboxPart(self.first, self.last, part, self.parts).name for part in range(self.parts)]
        return max(os.stat(os.path.join(self.folder, name)).st_mtime_ns for name in names) // 1000

    def batch(self) -> Batch:
        """Return the micro-batch that wrote the entry. Raises `OutboxDamaged`."""
        return read_part(self.folder, OutboxPart(self.first, self.last, 0, self.parts))[1]


class OutboxStart(NamedTuple):
    """Where a query starts: after the entry `last`, which is the newest complete one, or None.

    The tasks of the query write to the folder `drafts`.
    """

    last: Entry | None
    drafts: str


class Outbox:
    """The reader of an outbox. The folder need not exist yet."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)

    def next_entry(self, after: int) -> Entry | None:
        """Return the next entry to ingest, which continues after the commit `after`; None if it is not complete yet.

        If several entries qualify, it prefers the one that begins right after `after`, or nearest before that; then the
        one that ends first; then the one with the fewest parts. Costs one listing of the folder.
        """
        return _best(self._complete(), self.folder, after)

    def next_entries(self, after: int) -> list[Entry]:
        """Return all entries that can be ingested one after another after `after`, each as `next_entry` chooses it.

        Costs one listing of the folder.
        """
        complete, found = self._complete(), []
        while (entry := _best(complete, self.folder, after)) is not None:
            found.append(entry)
            after = entry.last
        return found

    def begin(self, *, is_local: bool = False) -> OutboxStart:
        """Prepare the outbox for a new query.

        Call it while no other query runs: it locks out the tasks of earlier ones.

        Deletes incomplete entries: they will never be complete, and must not mix with the parts of the new query. Set
        `is_local` if all tasks of the query run on this machine: then processes that wait for parts need not poll.
        """
        try:
            self._delete_drafts()
            complete = self._complete()
            for part in self._parts():
                if (part.first, part.last, part.parts) not in complete:
                    self._delete(part)
            drafts = os.path.join(self.folder, _DRAFTS + uuid.uuid4().hex)
            disk.make_folder(drafts)
            sign(os.path.join(self.folder, _SIGNATURE), is_local=is_local)
        except OSError as error:
            raise OutboxError(f"Outbox '{self.folder}' cannot be written: {error.strerror}") from error
        return OutboxStart(self.newest(), drafts)

    def watch(self) -> Watch:
        """Return a watch that waits until a part appears."""
        return Watch(self.folder, os.path.join(self.folder, _SIGNATURE))

    def newest(self) -> Entry | None:
        """Return the complete entry that reaches the furthest; None if no entry is complete."""
        if not (complete := self._complete()):
            return None
        first, last, parts = max(complete, key=lambda entry: entry[1])
        return Entry(self.folder, first - 1, first, last, parts)

    def complete_up_to(self, after: int) -> int:
        """Return the last commit of the complete entries that follow `after` without a gap, or `after`."""
        entries = self.next_entries(after)
        return entries[-1].last if entries else after

    def rewrite(self, change: Callable[[Result], Result], batch: Batch) -> None:
        """Change the results in all complete entries, for a repair, and name `batch` as their writer.

        No query may run meanwhile. Each part is replaced atomically, so after a kill this can be called again. Raises
        `OutboxError`.
        """
        drafts = self.begin().drafts
        for part in self._parts():
            before, _ = read_part(self.folder, part)
            write_part(drafts, part, map(change, before), batch)

    def delete_up_to(self, commit: int) -> None:
        """Delete all entries, complete or not, that end at or before this commit. It must be durably ingested."""
        for part in self._parts():
            if part.last <= commit:
                self._delete(part)

    def _delete_drafts(self) -> None:
        """Delete the draft folders of earlier queries. A draft that vanishes meanwhile has become a part."""
        folder = Path(self.folder)
        for drafts in [*folder.glob(f"{_DRAFTS}*")]:
            for attempt in range(_ATTEMPTS):
                for draft in drafts.iterdir():
                    disk.delete(draft)
                try:
                    disk.delete_folder(drafts)
                    break
                except OSError as error:
                    # A task has started another draft. Try again.
                    if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                        raise
        if folder.is_dir():
            disk.delete_abandoned(folder)

    def _delete(self, part: OutboxPart) -> None:
        path = Path(self.folder, part.name)
        try:
            disk.delete(path)
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
