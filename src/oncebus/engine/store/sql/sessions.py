"""Sessions: their locks, their state, and the search for the next free one.

`key` is the form of a session's id that is compared, see `session_key`; `name` is how it was spelled first.

`head` is a lower bound for the number of the session's first unlocked message, and NULL only if there is none. While
the session is locked, `head` may be wrong. The search for a free session verifies and corrects it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.values import SessionLock
from oncebus.model.entities.names import session_key


class SessionRow(NamedTuple):
    """One session of an entity."""

    entity: int
    key: str
    name: str
    head: int | None
    token: bytes | None
    locked_until: int | None
    state: bytes | None
    updated: int | None


_COLUMNS = ", ".join(SessionRow._fields)
_MESSAGE = (
    "EXISTS (SELECT 1 FROM message m WHERE m.entity = session.entity AND m.sub_queue = 0 "
    "AND m.stage IN (0, 1, 2, 3, 5, 6) AND m.session_key = session.key)"
)


class SessionTable:
    """The rows of all sessions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def get(self, entity: int, key: str) -> SessionRow | None:
        """Return a session; None if it is unknown."""
        row = self._execute(f"SELECT {_COLUMNS} FROM session WHERE entity = ? AND key = ?", (entity, key))
        found = row.fetchone()
        return None if found is None else SessionRow._make(found)

    def arrive(self, heads: Iterable[tuple[int, str, int]]) -> None:
        """Record unlocked messages that have arrived, as (entity, session, number)."""
        self._connection.executemany(
            "INSERT INTO session (entity, key, name, head) VALUES (?, ?, ?, ?) ON CONFLICT (entity, key) DO UPDATE SET "
            "head = CASE WHEN session.head < excluded.head THEN session.head ELSE excluded.head END",
            ((entity, session_key(name), name, head) for entity, name, head in heads),
        )

    def ensure(self, known: Iterable[tuple[int, str]]) -> None:
        """Create sessions, as (entity, session), that have messages but none to receive yet."""
        self._connection.executemany(
            "INSERT INTO session (entity, key, name) VALUES (?, ?, ?) ON CONFLICT (entity, key) DO NOTHING",
            ((entity, session_key(name), name) for entity, name in known),
        )

    def next_free(self, entity: int) -> SessionRow | None:
        """Return the unlocked session with the lowest head; None if there is none."""
        row = self._execute(
            f"SELECT {_COLUMNS} FROM session WHERE entity = ? AND head IS NOT NULL AND token IS NULL "
            "ORDER BY head LIMIT 1",
            (entity,),
        ).fetchone()
        return None if row is None else SessionRow._make(row)

    def set_head(self, entity: int, key: str, head: int | None) -> None:
        """Correct the head of a session."""
        self._execute("UPDATE session SET head = ? WHERE entity = ? AND key = ?", (head, entity, key))

    def hold(self, lock: SessionLock) -> None:
        """Lock a session, which may be new, or extend its lock."""
        self._execute(
            "INSERT INTO session (entity, key, name, token, locked_until) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (entity, key) DO UPDATE SET token = excluded.token, locked_until = excluded.locked_until",
            (lock.entity, lock.key, lock.session, lock.token, lock.locked_until),
        )

    def free(self, entity: int, key: str, head: int | None) -> None:
        """Unlock a session and set its head."""
        self._execute(
            "UPDATE session SET token = NULL, locked_until = NULL, head = ? WHERE entity = ? AND key = ?",
            (head, entity, key),
        )

    def expired_locks(self, now: int, limit: int) -> list[SessionRow]:
        """Return sessions of all entities whose lock has expired."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM session WHERE locked_until <= ? ORDER BY locked_until LIMIT ?", (now, limit)
        )
        return [SessionRow._make(row) for row in rows]

    def expired_locks_of(self, entity: int, now: int) -> list[SessionRow]:
        """Return sessions of one entity whose lock has expired."""
        rows = self._execute(f"SELECT {_COLUMNS} FROM session WHERE locked_until <= ? AND entity = ?", (now, entity))
        return [SessionRow._make(row) for row in rows]

    def first_end(self) -> int | None:
        """Return when the first lock of a session expires; None if no session is locked."""
        row = self._execute("SELECT min(locked_until) FROM session WHERE locked_until IS NOT NULL").fetchone()
        return None if row[0] is None else int(row[0])

    def last_end(self) -> int:
        """Return when the last lock of a session expires; 0 if there is none."""
        row = self._execute("SELECT max(locked_until) FROM session WHERE locked_until IS NOT NULL").fetchone()
        return row[0] or 0

    def set_state(self, entity: int, key: str, state: bytes | None, now: int) -> None:
        """Replace a session's state."""
        self._execute(
            "UPDATE session SET state = ?, updated = ? WHERE entity = ? AND key = ?", (state, now, entity, key)
        )

    def delete_idle(self, entity: int, key: str) -> None:
        """Delete a session if it has no lock, no state and no messages."""
        self._execute(
            f"DELETE FROM session WHERE entity = ? AND key = ? AND token IS NULL AND state IS NULL AND NOT {_MESSAGE}",
            (entity, key),
        )

    def delete_all(self, entity: int) -> None:
        """Delete all sessions of an entity."""
        self._execute("DELETE FROM session WHERE entity = ?", (entity,))

    def names(self, entity: int, updated_since: int | None, after: str | None, limit: int) -> list[str]:
        """Return the names of the sessions that have messages or state, by key; with `after`, those behind that key.

        With `updated_since`, only those whose state was set after it.
        """
        condition, values = f"(state IS NOT NULL OR {_MESSAGE})", list[int | str]()
        if updated_since is not None:
            condition, values = "updated >= ?", [updated_since]
        if after is not None:
            condition += " AND key > ?"
            values.append(after)
        rows = self._execute(
            f"SELECT name FROM session WHERE entity = ? AND {condition} ORDER BY key LIMIT ?",
            (entity, *values, limit),
        )
        return [name for (name,) in rows]
