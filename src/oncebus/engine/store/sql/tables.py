"""All tables over one connection."""

from __future__ import annotations

from typing import Self

from oncebus.engine.store.sql.body_files import BodyFileTable
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.counters import Counters
from oncebus.engine.store.sql.duplicates import DuplicateTable
from oncebus.engine.store.sql.forgets import ForgetTable
from oncebus.engine.store.sql.leaving import LeavingMessages
from oncebus.engine.store.sql.locks import LockTable
from oncebus.engine.store.sql.messages import MessageTable
from oncebus.engine.store.sql.origins import OriginTable
from oncebus.engine.store.sql.pending import PendingTable
from oncebus.engine.store.sql.progress import ProgressTable
from oncebus.engine.store.sql.quarantine import QuarantineTable
from oncebus.engine.store.sql.samples import SampleTable
from oncebus.engine.store.sql.searches import MessageSearch
from oncebus.engine.store.sql.sessions import SessionTable
from oncebus.engine.store.values import Place


class Tables:
    """The tables that the rules work on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Raised if a row has a value that another one has in a unique index.
        self.conflict = connection.conflict
        # Where messages became available in this transaction, and in earlier ones, apart from those that were ingested.
        self.arrivals: set[Place] = set()
        self.durable_arrivals: set[Place] = set()
        connection.after_commit.append(self._keep_arrivals)
        connection.after_rollback.append(self.arrivals.clear)
        self.counters = Counters(connection)
        self.body_files = BodyFileTable(connection)
        self.messages = MessageTable(connection, self.counters, self.body_files)
        self.locks = LockTable(connection, self.counters)
        self.leaving = LeavingMessages(connection, self.messages)
        self.searches = MessageSearch(connection)
        self.sessions = SessionTable(connection)
        self.progress = ProgressTable(connection)
        self.origins = OriginTable(connection, self.body_files)
        self.pending = PendingTable(connection)
        self.duplicates = DuplicateTable(connection)
        self.forgets = ForgetTable(connection)
        self.quarantine = QuarantineTable(connection, self.body_files)
        self.samples = SampleTable(connection)

    def _keep_arrivals(self) -> None:
        self.durable_arrivals |= self.arrivals
        self.arrivals.clear()

    def for_change(self) -> Self:
        """Return the tables for a change. Raises `StoreError` outside of a transaction."""
        self._connection.need_transaction()
        return self
