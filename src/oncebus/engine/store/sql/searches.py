"""Queries for people who look for messages and duplicates. Each reads a bounded number of rows.

Message ids have no index: it would cost every message that is ingested. So a search by id reads some messages at a
time, and its caller decides when to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncebus.engine.store.sql.connection import Connection, portions
from oncebus.engine.store.values import Duplicate, Found
from oncebus.model.entities.session_ids import session_key

_FOUND = "m.id, m.entity, m.sub_queue, m.sequence, m.stage, m.enqueued"
_DUPLICATE = ", ".join(Duplicate._fields)


class Searches:
    """Bounded searches. They change nothing."""

    def __init__(self, connection: Connection) -> None:
        self._execute = connection.execute

    def in_entity(
        self, entity: int, sub_queue: int, start: int, most_read: int, message_id: str | None, session: str | None
    ) -> tuple[list[int], int | None]:
        """Search messages from a sequence number on. Return the numbers of those that match, and where to go on.

        Where to go on is None if there are no more messages.
        """
        condition, values = "", list[Any]()
        if message_id is not None:
            condition += " AND c.message_id = ?"
            values.append(message_id)
        if session is not None:
            condition += " AND session_key(c.session) = ?"
            values.append(session_key(session))
        # A subquery with a limit keeps its rows, so the outer condition does not make it read more.
        some = "SELECT id, sequence FROM message WHERE entity = ? AND sub_queue = ? AND sequence >= ? ORDER BY sequence"
        of = (entity, sub_queue, start)
        found = self._execute(
            f"SELECT s.sequence FROM ({some} LIMIT ?) s JOIN content c ON c.id = s.id WHERE 1 = 1{condition} "
            "ORDER BY s.sequence",
            (*of, most_read, *values),
        ).fetchall()
        following = self._execute(f"SELECT sequence FROM ({some} LIMIT 1 OFFSET ?)", (*of, most_read)).fetchone()
        return [sequence for (sequence,) in found], None if following is None else following[0]

    def everywhere(self, message_id: str, before: int, most_read: int) -> tuple[list[Found], int | None]:
        """Search the messages of all entities that were ingested before the message `before`, newest first.

        Return the matches, and the `before` to go on with; None if all messages were read.
        """
        some = "SELECT id, message_id FROM content WHERE id < ? ORDER BY id DESC LIMIT ?"
        found = self._execute(
            f"SELECT {_FOUND} FROM ({some}) c JOIN message m ON m.id = c.id WHERE c.message_id = ?",
            (before, most_read, message_id),
        ).fetchall()
        last = self._execute(f"SELECT min(id), count(*) FROM ({some})", (before, most_read)).fetchone()
        return [Found._make(row) for row in found], last[0] if last[1] == most_read else None

    def in_quarantine(self, message_id: str, most_read: int) -> list[int]:
        """Return the entities that the newest quarantined rows with this id were sent to, newest first."""
        rows = self._execute(
            "SELECT entity FROM (SELECT entity, message_id FROM quarantine ORDER BY number DESC LIMIT ?) "
            "WHERE message_id = ?",
            (most_read, message_id),
        )
        return [entity for (entity,) in rows]

    def at(self, entity: int, sequences: Sequence[int]) -> list[Found]:
        """Return the messages of an entity with these sequence numbers that are still there, dead letters included."""
        found: list[Found] = []
        for some in portions(list(sequences)):
            rows = self._execute(
                f"SELECT {_FOUND} FROM message m WHERE m.entity = ? AND m.sub_queue IN (0, 1, 2) "
                f"AND m.sequence IN ({', '.join('?' * len(some))})",
                (entity, *some),
            )
            found += [Found._make(row) for row in rows]
        return found

    def newest_duplicates(self, entity: int, before: int | None, limit: int) -> list[Duplicate]:
        """Return an entity's duplicates with numbers below `before`, newest first."""
        condition = "entity = ?" if before is None else "entity = ? AND number < ?"
        values = (entity,) if before is None else (entity, before)
        rows = self._execute(
            f"SELECT {_DUPLICATE} FROM dropped WHERE {condition} ORDER BY number DESC LIMIT ?", (*values, limit)
        )
        return [Duplicate._make(row) for row in rows]

    def newest_duplicates_with_id(self, entity: int, message_id: str, limit: int) -> list[Duplicate]:
        """Return an entity's duplicates with this id, newest first."""
        rows = self._execute(
            f"SELECT {_DUPLICATE} FROM dropped WHERE entity = ? AND message_id = ? ORDER BY number DESC LIMIT ?",
            (entity, message_id, limit),
        )
        return [Duplicate._make(row) for row in rows]

    def duplicate_from(self, entity: int, number: int) -> tuple[int, int] | None:
        """Return (number, time) of the first duplicate of an entity from a number on; None if there is none."""
        row = self._execute(
            "SELECT number, time FROM dropped WHERE entity = ? AND number >= ? ORDER BY number LIMIT 1",
            (entity, number),
        ).fetchone()
        return None if row is None else (row[0], row[1])
