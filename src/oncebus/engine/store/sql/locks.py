"""The locks of messages. A message of a session is locked as long as the session is: its lock has no end of its own."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.sql.connection import Connection, lists
from oncebus.engine.store.sql.counters import Counters
from oncebus.engine.store.sql.messages import copies_where, copy_where
from oncebus.engine.store.values import Copy, Message, Stage

_LOCK = (
    "WITH held (id, stage, token, until) AS (VALUES",
    "(?, ?, ?, ?)",
    """) UPDATE message SET stage = held.stage, token = held.token, locked_until = CAST(held.until AS BIGINT),
    deliveries = deliveries + CASE WHEN sub_queue = 0 THEN 1 ELSE 0 END FROM held WHERE message.id = held.id""",
)
_UNLOCK = "UPDATE message SET stage = ?, token = NULL, locked_until = NULL, deliveries = ? WHERE id = ?"
_NO_LOCK_KNOWN = 2**63 - 1


class LockTable:
    """The locks in the rows of messages."""

    def __init__(self, connection: Connection, counters: Counters) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._counters = counters
        # A lower bound for the first end of any lock. It saves `receive` a statement while no lock expires.
        self._first_end = 0
        connection.after_rollback.append(self._forget)

    def _forget(self) -> None:
        self._first_end = 0

    def with_token(self, token: bytes) -> Copy | None:
        """Return the message with this lock token, even if the lock has expired."""
        return copy_where(self._execute, "m.token = ?", (token,))

    def with_tokens(self, tokens: Sequence[bytes]) -> dict[bytes, Copy]:
        """Return the messages with these lock tokens, by token, even if the locks have expired."""
        found: dict[bytes, Copy] = {}
        for marks, some in lists(tokens):
            copies = copies_where(self._execute, f"m.token IN ({marks})", some)
            found |= {copy.token: copy for copy in copies if copy.token is not None}
        return found

    def held_in_session(self, entity: int, key: str) -> list[Copy]:
        """Return the messages of a session that were received and are locked with it."""
        return copies_where(
            self._execute, "m.entity = ? AND m.sub_queue = 0 AND m.stage IN (3, 5) AND m.session_key = ?", (entity, key)
        )

    def expired_locks(self, now: int, limit: int) -> list[Copy]:
        """Return messages of all entities whose own lock has expired."""
        return copies_where(self._execute, "m.locked_until <= ? ORDER BY m.locked_until LIMIT ?", (now, limit))

    def expired_locks_of(self, entity: int, now: int) -> list[Copy]:
        """Return messages of one entity whose own lock has expired."""
        if now < self._first_end:
            return []
        found = copies_where(self._execute, "m.locked_until <= ? AND m.entity = ?", (now, entity))
        if not found:
            first = self.first_end()
            # Other processes lock too, and tell us nothing.
            if not self._connection.is_shared:
                self._first_end = _NO_LOCK_KNOWN if first is None else first
        return found

    def first_end(self) -> int | None:
        """Return when the first lock of a message expires; None if no message is locked."""
        row = self._execute("SELECT min(locked_until) FROM message WHERE locked_until IS NOT NULL").fetchone()
        return None if row[0] is None else int(row[0])

    def last_end(self) -> int:
        """Return when the last lock of a message expires; 0 if there is none."""
        row = self._execute("SELECT max(locked_until) FROM message WHERE locked_until IS NOT NULL").fetchone()
        return row[0] or 0

    def lock(self, messages: Sequence[Message], stage: Stage) -> None:
        """Store the lock token and the end of the lock of each message, as they are in `messages`.

        The delivery counts, except in a dead-letter queue.
        """
        ends = {message.locked_until for message in messages}
        self._first_end = min([self._first_end, *(end for end in ends if end is not None)])
        start, marks, end = _LOCK
        held = [(message.id, stage, message.token, message.locked_until) for message in messages]
        self._connection.execute_values(start, marks, held, end)

    def extend(self, copy: Copy, until: int) -> None:
        """Change the end of a lock to `until`."""
        self._first_end = min(self._first_end, until)
        self._execute("UPDATE message SET locked_until = ? WHERE id = ?", (until, copy.id))

    def unlock(self, copy: Copy, stage: Stage, deliveries: int) -> None:
        """Unlock a message and set its stage and its number of deliveries."""
        self._counters.move(copy.entity, (copy.sub_queue, copy.stage), (copy.sub_queue, stage))
        self._execute(_UNLOCK, (stage, deliveries, copy.id))
