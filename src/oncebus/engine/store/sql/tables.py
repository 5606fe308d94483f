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

_MOVED = (
    ("highest", "time"),
    ("dropped", "time"),
    ("dropped", "original_time"),
    ("forgotten", "time"),
    ("forgotten", "original_time"),
    ("quarantine", "time"),
    ("session", "updated"),
)
"""The columns that `bring_back` moves, besides those of messages and locks."""


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


def bring_back(connection: Connection, now: int, longest_lock: int) -> int:
    """Move times in the future back to `now`. See `Store.bring_back`."""
    execute = connection.execute
    # The message keeps the time to live that it had when it was enqueued.
    execute("UPDATE message SET expires = expires - (enqueued - ?1) WHERE enqueued > ?1", (now,))
    moved = execute("UPDATE message SET enqueued = ?1 WHERE enqueued > ?1", (now,)).rowcount
    for table in ("message", "session"):
        execute(f"UPDATE {table} SET locked_until = ?1 WHERE locked_until > ?1", (now + longest_lock,))
    for table, column in _MOVED:
        execute(f"UPDATE {table} SET {column} = ?1 WHERE {column} > ?1", (now,))
    # Nobody can tell when the samples of those times were really taken.
    execute("DELETE FROM sample WHERE slot * step * 1000000 > ?", (now,))
    execute("DELETE FROM running WHERE began > ?", (now,))
    execute("UPDATE running SET ended = ?1 WHERE ended > ?1", (now,))
    execute("UPDATE progress SET value = ?1 WHERE name IN ('time', 'judged') AND value > ?1", (now,))
    return moved
