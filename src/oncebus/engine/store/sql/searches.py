"""Bounded searches for messages.

Message ids have no index: it would cost every message that is ingested. So a search by id reads some messages at a
time, and its caller decides when to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncebus.engine.store.records import Found
from oncebus.engine.store.sql.connection import Connection, lists
from oncebus.engine.store.sql.messages import copies_where
from oncebus.engine.store.values import Copy
from oncebus.model.entities.names import session_key

_FOUND = "m.id, m.entity, m.sub_queue, m.sequence, m.stage, m.enqueued"
_HIGHEST = 2**63 - 1


class MessageSearch:
    """Bounded searches. They change nothing."""

    def __init__(self, connection: Connection) -> None:
        self._execute = connection.execute

    def search(
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
        some = (
            "SELECT content, sequence FROM message WHERE entity = ? AND sub_queue = ? AND sequence >= ? "
            "ORDER BY sequence"
        )
        of = (entity, sub_queue, start)
        found = self._execute(
            f"SELECT s.sequence FROM ({some} LIMIT ?) s JOIN content c ON c.id = abs(s.content) WHERE 1 = 1{condition} "
            "ORDER BY s.sequence",
            (*of, most_read, *values),
        ).fetchall()
        following = self._execute(f"SELECT sequence FROM ({some} LIMIT 1 OFFSET ?) s", (*of, most_read)).fetchone()
        return [sequence for (sequence,) in found], None if following is None else following[0]

    def search_everywhere(self, message_id: str, before: int, most_read: int) -> tuple[list[Found], int | None]:
        """Search the messages of all entities that were ingested before the message `before`, newest first.

        Return the matches, and the `before` to go on with; None if all messages were read.
        """
        some = "SELECT id, content FROM message WHERE id < ? ORDER BY id DESC LIMIT ?"
        found = self._execute(
            f"SELECT {_FOUND} FROM ({some}) s JOIN content c ON c.id = abs(s.content) JOIN message m ON m.id = s.id "
            "WHERE c.message_id = ?",
            (before, most_read, message_id),
        ).fetchall()
        last = self._execute(f"SELECT min(id), count(*) FROM ({some}) s", (before, most_read)).fetchone()
        return [Found._make(row) for row in found], last[0] if last[1] == most_read else None

    def with_sequences(self, entity: int, sequences: Sequence[int]) -> list[Found]:
        """Return the messages of an entity with these sequence numbers that are still there, dead letters included."""
        found: list[Found] = []
        for marks, some in lists(sequences):
            rows = self._execute(
                f"SELECT {_FOUND} FROM message m WHERE m.entity = ? AND m.sub_queue IN (0, 1, 2) "
                f"AND m.sequence IN ({marks})",
                (entity, *some),
            )
            found += [Found._make(row) for row in rows]
        return found

    def oldest(self, entity: int, sub_queue: int, before: int, limit: int, key: str | None) -> list[Copy]:
        """Return unlocked messages that were enqueued before a time, ordered by number.

        If `key` is given, return only messages of the session with that key.
        """
        condition, values = "", []
        if key is not None:
            condition, values = "AND m.session_key = ?", [key]
        return copies_where(
            self._execute,
            f"m.entity = ? AND m.sub_queue = ? AND m.stage = 0 {condition} AND m.enqueued < ? "
            "ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, *values, before, limit),
        )

    def find_unlocked(
        self, entity: int, sub_queue: int, after: int, before: int, limit: int, most_read: int
    ) -> tuple[list[Copy], int | None]:
        """Return unlocked messages with numbers above `after` that were enqueued before a time, ordered by number.

        Reads at most `most_read` messages. Also return the `after` to go on with; None if there are no more.
        """
        # The index `place` alone has the number of the last message to read, and the order.
        row = self._execute(
            "SELECT sequence FROM message WHERE entity = ? AND sub_queue = ? AND sequence > ? "
            "ORDER BY sequence LIMIT 1 OFFSET ?",
            (entity, sub_queue, after, most_read - 1),
        ).fetchone()
        last = None if row is None else int(row[0])
        copies = copies_where(
            self._execute,
            "m.entity = ? AND m.sub_queue = ? AND m.sequence > ? AND m.sequence <= ? AND m.stage = 0 "
            "AND m.enqueued < ? ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, after, _HIGHEST if last is None else last, before, limit),
        )
        return copies, copies[-1].sequence if len(copies) == limit else last
