"""All tables over one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oncebus.engine.store.sql.body_files import BodyFileReferences
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.counters import Counters
from oncebus.engine.store.sql.messages import Messages
from oncebus.engine.store.sql.pending import PendingMessages
from oncebus.engine.store.sql.records import Records
from oncebus.engine.store.sql.samples import SampleTable
from oncebus.engine.store.sql.searches import Searches
from oncebus.engine.store.sql.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the rules work on."""

    counters: Counters
    body_files: BodyFileReferences
    messages: Messages
    sessions: Sessions
    records: Records
    pending: PendingMessages
    samples: SampleTable
    searches: Searches

    @classmethod
    def over(cls, connection: Connection) -> Self:
        """Return the tables of an open store."""
        counters, body_files = Counters(connection), BodyFileReferences(connection)
        return cls(
            counters,
            body_files,
            Messages(connection, counters, body_files),
            Sessions(connection),
            Records(connection, body_files),
            PendingMessages(connection),
            SampleTable(connection),
            Searches(connection),
        )
