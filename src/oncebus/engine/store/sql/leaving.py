"""The messages that leave their place through the inbox: forwarded ones, and those that return to their own entity."""

from __future__ import annotations

from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.messages import MessageTable, copies_where, copy_where
from oncebus.engine.store.values import LEAVING, Copy, Stage, SubQueue


class LeavingMessages:
    """The rows of messages that leave."""

    def __init__(self, connection: Connection, messages: MessageTable) -> None:
        self._execute = connection.execute
        self._messages = messages

    def entities(self) -> list[int]:
        """Return the entities with messages to append to the inbox. Costs one index step for each entity."""
        found: set[int] = set()
        for stage in LEAVING:
            entity = -1
            while True:
                row = self._execute(
                    f"SELECT entity FROM message WHERE stage = {stage} AND entity > ? ORDER BY entity LIMIT 1",
                    (entity,),
                ).fetchone()
                if row is None:
                    break
                entity = row[0]
                found.add(entity)
        return sorted(found)

    def returning(self, entity: int, sequence: int) -> Copy | None:
        """Return the message with this number if it is returning to its own entity."""
        return copy_where(
            self._execute,
            "m.entity = ? AND m.sub_queue IN (0, 1, 2) AND m.sequence = ? AND m.stage = 6",
            (entity, sequence),
        )

    def of_entity(self, entity: int, limit: int) -> list[Copy]:
        """Return messages of an entity to append to the inbox: first returning ones by time, then others by number."""
        found = copies_where(
            self._execute, "m.stage = 6 AND m.entity = ? ORDER BY m.scheduled, m.sequence LIMIT ?", (entity, limit)
        )
        if len(found) < limit:
            found += copies_where(
                self._execute, "m.stage = 4 AND m.entity = ? ORDER BY m.sequence LIMIT ?", (entity, limit - len(found))
            )
        return found

    def claim(self, entity: int, sub_queue: SubQueue, limit: int) -> int:
        """Mark the first messages that are not locked as being forwarded. Return how many."""
        # By number across all sessions. The plus makes SQLite walk the index of numbers instead of sorting.
        claimed = copies_where(
            self._execute,
            "m.entity = ? AND m.sub_queue = ? AND +m.stage = 0 ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, limit),
        )
        for copy in claimed:
            self._messages.set_stage(copy, Stage.FORWARD)
        return len(claimed)

    def send_back(self, copy: Copy, expires: int | None) -> None:
        """Mark a message that is not locked as returning through the inbox, with a new time of expiry."""
        self._messages.set_stage(copy, Stage.RETURN)
        if expires != copy.expires:
            self._execute("UPDATE message SET expires = ? WHERE id = ?", (expires, copy.id))
