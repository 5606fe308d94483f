"""All tables over one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from oncebus.store.sql.blobs import BlobReferences
from oncebus.store.sql.connection import Connection
from oncebus.store.sql.counters import Counters
from oncebus.store.sql.messages import Messages
from oncebus.store.sql.records import Records
from oncebus.store.sql.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Tables:
    """What the rules work on."""

    counters: Counters
    blobs: BlobReferences
    messages: Messages
    sessions: Sessions
    records: Records

    @classmethod
    def over(cls, connection: Connection) -> Self:
        """The tables of an open store."""
        counters, blobs = Counters(connection), BlobReferences(connection)
        return cls(
            counters, blobs, Messages(connection, counters, blobs), Sessions(connection), Records(connection, blobs)
        )
