"""The delivery store: the messages that receivers see."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from oncebus.engine.store.dead_letters import DeadLetters
from oncebus.engine.store.duplicates import Duplicates
from oncebus.engine.store.entities import StoredEntities
from oncebus.engine.store.entries import OutboxEntries
from oncebus.engine.store.forgets import Forgets
from oncebus.engine.store.locks import Locks
from oncebus.engine.store.messages import Messages
from oncebus.engine.store.pending import PendingMessages
from oncebus.engine.store.progress import IngestProgress
from oncebus.engine.store.quarantine import Quarantine
from oncebus.engine.store.requeues import Requeues
from oncebus.engine.store.sampler import Sampler
from oncebus.engine.store.scheduled import ScheduledMessages
from oncebus.engine.store.sessions import Sessions
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.sqlite import SqliteConnection
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.tokens import LockTokens
from oncebus.engine.store.values import Place

DUPLICATES_KEPT = 100_000
DUPLICATES_AGE = 7 * 24 * 3600 * 1_000_000


class Store:
    """One database, used by one thread at a time. The store reads no clock: `now` is an argument.

    Each part owns its rules. Call methods that change something inside `with store.transaction():`. Do not use their
    results outside before the block has ended: if the block fails, it has changed nothing. A full disk raises
    `StoreFull`.
    """

    def __init__(
        self,
        connection: Connection,
        random: Callable[[int], bytes] = os.urandom,
        duplicates_kept: int = DUPLICATES_KEPT,
        duplicates_age: int = DUPLICATES_AGE,
    ) -> None:
        """Use the tables behind a connection; see `open`."""
        self._connection = connection
        self._tables = tables = Tables(connection)
        tokens = LockTokens(random)
        self.samples = Sampler(tables)
        self.entries = OutboxEntries(tables, self.samples, duplicates_kept, duplicates_age)
        self.progress = IngestProgress(tables)
        self.messages = Messages(tables, tokens)
        self.locks = Locks(tables)
        self.sessions = Sessions(tables, tokens)
        self.scheduled = ScheduledMessages(tables)
        self.dead_letters = DeadLetters(tables)
        self.requeues = Requeues(tables)
        self.pending = PendingMessages(tables)
        self.duplicates = Duplicates(tables, duplicates_age)
        self.forgets = Forgets(tables)
        self.quarantine = Quarantine(tables)
        self.entities = StoredEntities(tables, self.samples)
        self.body_files = tables.body_files

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        start: int = 0,
        random: Callable[[int], bytes] = os.urandom,
        duplicates_kept: int = DUPLICATES_KEPT,
        duplicates_age: int = DUPLICATES_AGE,
    ) -> Self:
        """Open the store at a path, or create it. The time this takes does not depend on the number of messages.

        A new store expects the inbox commit `start` + 1 first. `random` returns the given number of random bytes, for
        lock tokens. Raises `StoreInUse` if another process has the store open, `StoreMismatch` if the file is not a
        store or is from a newer version.
        """
        return cls(SqliteConnection.open(path, start), random, duplicates_kept, duplicates_age)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def take_arrivals(self) -> set[Place]:
        """Return where messages became available since the last call, except those that `entries.ingest` reports.

        A message becomes available when its lock ends or is given up, and when it becomes a dead letter. Whoever finds
        that first does it, also a receive or the lock of a session. Call this after a transaction.
        """
        arrivals, self._tables.durable_arrivals = self._tables.durable_arrivals, set()
        return arrivals

    def keep_file(self) -> None:
        """Keep the store's file as it is, for a copy, until `change_file`. Call it outside of a transaction."""
        self._connection.keep_file()

    def change_file(self) -> None:
        """Let the store's file change again."""
        self._connection.change_file()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context whose calls become durable together, with one fsync, when it ends. Contexts do not nest."""
        return self._connection.transaction()
