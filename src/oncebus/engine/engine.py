"""The engine: everything durable of a broker behind one object.

The broker knows the parts of an engine only by what they promise here. Nothing outside `oncebus.engine` and the
pipeline knows where they are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Protocol

from oncebus.engine.agreement import DataMismatch, check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import BodyFiles, InboxError, InboxWriter, Row
from oncebus.engine.outbox import Entry, Outbox
from oncebus.engine.parts import check_bodies, check_inbox_is_there, check_parts
from oncebus.engine.snapshot import begin_snapshot, drop_snapshot, end_snapshot
from oncebus.engine.store import DUPLICATES_KEPT, Store
from oncebus.engine.stored_times import check_stored_times
from oncebus.ledger import Ledger, LedgerSummary
from oncebus.model.entities import Catalogue, CatalogueFiles
from oncebus.model.messages import LogRow
from oncebus.values.watching import Watch

log = logging.getLogger(__name__)


class LogReader(Protocol):
    """Reads the log while it is being written. It sees durable commits only."""

    def read(self, first: int, last: int) -> Iterator[LogRow]:
        """Return the rows of the commits `first` to `last`, commit by commit."""
        ...

    def length(self, commit: int) -> int:
        """Return how many bytes a commit takes."""
        ...

    def forget(self, commit: int) -> None:
        """Drop what the reader knows about commits up to this one: they will not be read again."""
        ...


class Log(Protocol):
    """The one order of everything that was accepted: commits, numbered without gaps. One caller at a time writes."""

    @property
    def last_commit(self) -> int:
        """Return the newest durable commit."""
        ...

    @property
    def last_bytes(self) -> int:
        """Return how many bytes the newest commit takes."""
        ...

    @property
    def size(self) -> int:
        """Return how many bytes all commits take. Any thread may ask."""
        ...

    @property
    def is_torn(self) -> bool:
        """Return whether a crash could bring back rows that `append` refused."""
        ...

    def append(self, rows: Sequence[Row], catalogue: int) -> int:
        """Make rows durable and then readable, as one commit, and return its number. Raises `InboxError`.

        The rows were checked under this version of the catalogue. If `last_commit` has not changed after an error,
        the rows are not accepted.
        """
        ...

    def delete_below(self, commit: int) -> None:
        """Forget commits up to this one, as far as that is convenient. Nobody will read them again."""
        ...

    def reader(self) -> LogReader:
        """Return a reader of its own for the caller."""
        ...

    def close(self) -> None:
        """Let another writer open the log."""
        ...


class Results(Protocol):
    """What the pipeline made of the log: entries, each for some commits, complete or not there at all."""

    def next_entries(self, after: int) -> list[Entry]:
        """Return the entries that continue one after another after this commit."""
        ...

    def delete_up_to(self, commit: int) -> None:
        """Delete the entries that end at or before this commit, which is durably ingested."""
        ...

    def watch(self) -> Watch:
        """Return what waits until something has been published."""
        ...


class Bodies(Protocol):
    """Bodies that are too large for a row. A body is durable before the commit that names it, and never changes."""

    def write(self, body: bytes) -> str:
        """Make a body durable and return its name. Raises `InboxFull`."""
        ...

    def read(self, name: str) -> memoryview:
        """Return a body. Raises `FileNotFoundError` or `InboxDamaged`."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete bodies. Ignores those that do not exist."""
        ...


class CatalogueVersions(Protocol):
    """The versions of the catalogue. Rows name the version under which they were accepted."""

    def latest(self) -> Catalogue | None:
        """Return the highest version; None if nothing was ever published."""
        ...

    def publish(self, catalogue: Catalogue) -> None:
        """Make a higher version durable: once this returns, the pipeline can load it."""
        ...

    def delete_below(self, version: int) -> None:
        """Delete all versions below this one, but never the latest."""
        ...


class Engine:
    """The durable parts of one broker. Make it with `files`; it is closed by whoever closes `log` and `store`.

    A change of the store and an append to the log are not one step here. Who needs both writes the change first,
    together with what is to be appended: `store.pending` for transactions, `store.requeues` for messages that come
    back. The rows carry their origin, and the store ingests each origin once, so that appending them again after a
    crash does no harm. An engine whose log and store share transactions needs neither.
    """

    def __init__(self, folders: Folders, log: InboxWriter, store: Store) -> None:
        """Use `files` instead."""
        self.log: Log = log
        self.results: Results = Outbox(folders.outbox)
        self.store = store
        # What the store does not know yet.
        self.unread = log.unread_marks(store.progress.position())
        self.bodies: Bodies = BodyFiles(folders.body_files)
        self.catalogues: CatalogueVersions = CatalogueFiles(folders.catalogue)
        self._folders = folders

    @classmethod
    def files(cls, folders: Folders, shards: int, *, duplicates_kept: int = DUPLICATES_KEPT) -> Engine:
        """Open the data folder of a broker, or create one: logs in files, and a store in SQLite.

        Raises `InboxInUse` or `StoreInUse` while another process has it open, and `DataMismatch` if a part was restored
        from another backup. The store may be used by another thread than this one: one at a time is enough.
        """
        folders.make()
        check_inbox_is_there(folders)
        with ExitStack() as undone:
            log = undone.enter_context(InboxWriter.open(folders.inbox, shards))
            store = undone.enter_context(closing(Store.open(folders.store, duplicates_kept=duplicates_kept)))
            check_no_repair(folders)
            check_parts(folders, log.last_commit, store, CatalogueFiles(folders.catalogue).versions())
            engine = cls(folders, log, store)
            undone.pop_all()
            return engine

    def begin_snapshot(self) -> None:
        """Begin a copy of everything at this moment. Nobody may append, and the pipeline must have caught up.

        Then keep the file of the store until `end_snapshot` has returned.
        """
        begin_snapshot(self._folders)

    def end_snapshot(self) -> None:
        """End the copy. The broker may go on meanwhile."""
        end_snapshot(self._folders)

    def drop_snapshot(self) -> None:
        """Delete the copy, or what there is of it."""
        drop_snapshot(self._folders)

    def close(self) -> None:
        """Close all parts, if no broker has taken them over."""
        self.log.close()
        self.store.close()

    def check_times(self, now: int) -> int:
        """Return the newest time of any message, accepted or remembered. Raises `TimesAhead` if it is far after `now`.

        The same holds for a lock that ends far in the future.
        """
        stored = {
            f"store '{self._folders.store}'": self.store.progress.newest_time(),
            f"inbox '{self._folders.inbox}'": self.unread.time or 0,
            f"ledger '{self._folders.ledger}'": Ledger.open(self._folders.ledger).listing().horizon(),
        }
        check_stored_times(stored, now, self._folders.data, self.store.locks.last_end())
        return max(0, *stored.values())

    def check_bodies(self, awaited: Collection[str]) -> None:
        """Raise `DataMismatch` unless every body that messages name exists. Delete those that no message can name.

        Nobody may be writing. `awaited` are the names in rows of the log that the store has not ingested yet.
        """
        bodies = BodyFiles(self._folders.body_files)
        check_bodies(self._folders, self.store, awaited)
        try:
            orphans = self.store.body_files.list_unknown([name for name in bodies.names() if name not in awaited])
            bodies.delete(orphans)
            bodies.delete_unfinished()
        except (OSError, InboxError) as error:
            # They only take up space.
            log.warning("Cannot delete body files that no message names: %s", error)
        else:
            if orphans:
                log.info("Deleted body files that no message names: %d", len(orphans))

    def check_results(self, position: int) -> None:
        """Raise `DataMismatch` if the entry after a commit can never come, because a later one is already there."""
        outbox = Outbox(self._folders.outbox)
        newest = outbox.newest()
        # Look for the next entry again: a listing may miss one that appeared meanwhile.
        if newest is not None and newest.after > position and outbox.next_entry(position) is None:
            raise DataMismatch(
                f"Outbox '{outbox.folder}' continues after commit {newest.after}, but the store has ingested none "
                f"after commit {position}"
            )

    def remembered(self) -> LedgerSummary:
        """Return how many ids are remembered, and how much room they take."""
        return Ledger.open(self._folders.ledger).summary()
