"""All tables over one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oncebus.store.sql.body_files import BodyFileReferences
from oncebus.store.sql.connection import Connection
from oncebus.store.sql.counters import Counters
from oncebus.store.sql.messages import Messages
from oncebus.store.sql.records import Records
from oncebus.store.sql.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the rules work on."""

    counters: Counters
    body_files: BodyFileReferences
    messages: Messages
    sessions: Sessions
    records: Records

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
        )
