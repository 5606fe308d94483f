"""Messages and their content. Each change also updates the counters and the reference counts of body files."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from oncebus.engine.store.sql.body_files import BodyFileReferences
from oncebus.engine.store.sql.connection import Connection, portions
from oncebus.engine.store.sql.counters import Counters
from oncebus.engine.store.values import LEAVING, Copy, Message, Quarantined, Stage, SubQueue
from oncebus.model.entities.session_ids import session_key

_COPY = ", ".join(f"m.{name}" for name in Copy._fields)
_FULL = (
    f"{_COPY}, m.enqueued_sequence, m.reason, m.description, m.source, m.origin, "
    "c.message_id, c.session, c.partition_key, c.head, c.body"
)
_READY = f"""SELECT {_FULL} FROM message m JOIN content c ON c.id = m.id
    WHERE m.entity = ? AND m.sub_queue = ? AND m.stage = 0 AND m.session_key = ? ORDER BY m.sequence LIMIT ?"""
_LOCK = (
    "WITH held (id, stage, token, until) AS (VALUES",
    "(?, ?, ?, ?)",
    """) UPDATE message SET stage = held.stage, token = held.token, locked_until = held.until,
    deliveries = deliveries + (sub_queue = 0) FROM held WHERE message.id = held.id""",
)
_UNLOCK = "UPDATE message SET stage = ?, token = NULL, locked_until = NULL, deliveries = ? WHERE id = ?"
_NO_LOCK_KNOWN = 2**63 - 1
_HIGHEST = 2**63 - 1


def _fitting(rows: sqlite3.Cursor, most_bytes: int | None) -> list[Message]:
    """Return the first messages up to a total of `most_bytes`, but at least one. The others are not read."""
    if most_bytes is None:
        return list(map(Message._make, rows))
    found: list[Message] = []
    size = 0
    for row in rows:
        message = Message._make(row)
        size += message.size
        if found and size > most_bytes:
            rows.close()
            break
        found.append(message)
    return found


def _marks(number: int) -> str:
    return ", ".join("?" * number)


class Messages:
    """The rows of all messages. There are no rules here: callers decide what may happen."""

    def __init__(self, connection: Connection, counters: Counters, body_files: BodyFileReferences) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._counters = counters
        self._body_files = body_files
        # A lower bound for the first end of any lock. It saves `receive` a statement while no lock expires.
        self._first_end = 0
        connection.after_rollback.append(self._forget)

    def _forget(self) -> None:
        self._first_end = 0

    def next_id(self) -> int:
        """Return an id above all ids in use."""
        return int(self._execute("SELECT coalesce(max(id), 0) + 1 FROM message").fetchone()[0])

    def insert(self, messages: Iterable[tuple[Any, ...]], contents: Iterable[tuple[Any, ...]]) -> None:
        """Add rows in the layout of `oncebus.engine.store.entry`. The caller must update the counters."""
        self._connection.execute_values(
            "INSERT INTO message (id, entity, sub_queue, stage, session_key, sequence, enqueued_sequence, enqueued, "
            "expires, scheduled, hops, size, reason, description, source, origin, body_file, deliveries) VALUES",
            f"({_marks(17)}, 0)",
            messages,
        )
        self._connection.execute_values(
            "INSERT INTO content (id, message_id, session, partition_key, head, body) VALUES",
            f"({_marks(6)})",
            contents,
        )

    def schedule(self, row: Quarantined, key: str, when: int) -> None:
        """Turn a quarantined row into a scheduled message. The caller must update the counters."""
        id_, waits = self.next_id(), (SubQueue.MAIN, Stage.SCHEDULED)
        placed = (id_, row.entity, *waits, key, row.sequence, row.sequence, row.time)
        self.insert(
            [(*placed, None, when, 0, row.size, None, None, None, None, row.body_file)],
            [(id_, row.message_id, row.session, row.partition_key, row.head, row.body)],
        )

    # Finding

    def ready(self, entity: int, sub_queue: int, key: str, limit: int, most_bytes: int | None = None) -> list[Message]:
        """Return the first messages that are not locked, including expired ones."""
        return _fitting(self._execute(_READY, (entity, sub_queue, key, limit)), most_bytes)

    def first_ready(self, entity: int, key: str) -> Copy | None:
        """Return the first message of a session that is not locked."""
        return self._copy(
            "m.entity = ? AND m.sub_queue = 0 AND m.stage = 0 AND m.session_key = ? ORDER BY m.sequence LIMIT 1",
            (entity, key),
        )

    def with_token(self, token: bytes) -> Copy | None:
        """Return the message with this lock token, even if the lock has expired."""
        return self._copy("m.token = ?", (token,))

    def with_tokens(self, tokens: Sequence[bytes]) -> dict[bytes, Copy]:
        """Return the messages with these lock tokens, by token, even if the locks have expired."""
        found: dict[bytes, Copy] = {}
        for some in portions(tokens):
            copies = self._copies(f"m.token IN ({_marks(len(some))})", tuple(some))
            found |= {copy.token: copy for copy in copies if copy.token is not None}
        return found

    def at(self, entity: int, sub_queue: int, sequence: int) -> Copy | None:
        """Return the message with this sequence number, in any stage."""
        return self._copy("m.entity = ? AND m.sub_queue = ? AND m.sequence = ?", (entity, sub_queue, sequence))

    def full(self, id_: int) -> Message:
        """Return a message with its content."""
        row = self._execute(f"SELECT {_FULL} FROM message m JOIN content c ON c.id = m.id WHERE m.id = ?", (id_,))
        return Message._make(row.fetchone())

    def from_sequence(
        self,
        entity: int,
        sub_queue: int,
        sequence: int,
        limit: int,
        now: int,
        session: str | None,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Return messages by number, in any stage, except expired ones and those that are being forwarded."""
        condition, values = "m.entity = ? AND m.sub_queue = ? AND m.sequence >= ?", [entity, sub_queue, sequence]
        more: list[Any] = []
        if session is not None:
            # In the main queue by its index; elsewhere messages have no session key.
            condition += " AND m.session_key = ?" if sub_queue == SubQueue.MAIN else " AND session_key(c.session) = ?"
            more.append(session_key(session))
        rows = self._execute(
            f"SELECT {_FULL} FROM message m JOIN content c ON c.id = m.id WHERE {condition} "
            "AND m.stage IN (0, 1, 2, 3, 5, 6) "
            "AND (m.sub_queue <> 0 OR m.expires IS NULL OR m.expires > ?) "
            "ORDER BY m.sequence LIMIT ?",
            (*values, *more, now, limit),
        )
        return _fitting(rows, most_bytes)

    def held_in_session(self, entity: int, key: str) -> list[Copy]:
        """Return the messages of a session that were received and are locked with it."""
        return self._copies(
            "m.entity = ? AND m.sub_queue = 0 AND m.stage IN (3, 5) AND m.session_key = ?", (entity, key)
        )

    def expired_locks(self, now: int, limit: int) -> list[Copy]:
        """Return messages of all entities whose own lock has expired."""
        return self._copies("m.locked_until <= ? ORDER BY m.locked_until LIMIT ?", (now, limit))

    def first_end(self) -> int | None:
        """Return when the first lock of a message expires; None if no message is locked."""
        row = self._execute("SELECT min(locked_until) FROM message WHERE locked_until IS NOT NULL").fetchone()
        return None if row[0] is None else int(row[0])

    def expired_locks_of(self, entity: int, now: int) -> list[Copy]:
        """Return messages of one entity whose own lock has expired."""
        if now < self._first_end:
            return []
        found = self._copies("m.locked_until <= ? AND m.entity = ?", (now, entity))
        if not found:
            first = self.first_end()
            self._first_end = _NO_LOCK_KNOWN if first is None else first
        return found

    def last_end(self) -> int:
        """Return when the last lock of a message expires; 0 if there is none."""
        row = self._execute("SELECT max(locked_until) FROM message WHERE locked_until IS NOT NULL").fetchone()
        return row[0] or 0

    def expired(self, now: int, limit: int) -> list[Copy]:
        """Return expired messages of main queues that are not locked."""
        return self._copies(
            "m.expires IS NOT NULL AND m.sub_queue = 0 AND m.stage < 3 AND m.expires <= ? ORDER BY m.expires LIMIT ?",
            (now, limit),
        )

    def due(self, now: int, limit: int) -> list[Copy]:
        """Return scheduled messages whose time has come, earliest first."""
        return self._copies("m.stage = 2 AND m.scheduled <= ? ORDER BY m.scheduled, m.sequence LIMIT ?", (now, limit))

    def next_due(self, now: int) -> int | None:
        """Return the first time after `now` at which a scheduled message falls due."""
        row = self._execute(
            "SELECT scheduled FROM message WHERE stage = 2 AND scheduled > ? ORDER BY scheduled LIMIT 1", (now,)
        ).fetchone()
        return None if row is None else int(row[0])

    def leaving_entities(self) -> list[int]:
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
        return self._copy(
            "m.entity = ? AND m.sub_queue IN (0, 1, 2) AND m.sequence = ? AND m.stage = 6", (entity, sequence)
        )

    def leaving(self, entity: int, limit: int) -> list[Copy]:
        """Return messages of an entity to append to the inbox: first returning ones by time, then others by number."""
        found = self._copies("m.stage = 6 AND m.entity = ? ORDER BY m.scheduled, m.sequence LIMIT ?", (entity, limit))
        if len(found) < limit:
            found += self._copies(
                "m.stage = 4 AND m.entity = ? ORDER BY m.sequence LIMIT ?", (entity, limit - len(found))
            )
        return found

    def oldest(self, entity: int, sub_queue: int, before: int, limit: int, key: str | None) -> list[Copy]:
        """Return unlocked messages that were enqueued before a time, ordered by number.

        If `key` is given, return only messages of the session with that key.
        """
        condition, values = "", []
        if key is not None:
            condition, values = "AND m.session_key = ?", [key]
        return self._copies(
            f"m.entity = ? AND m.sub_queue = ? AND m.stage = 0 {condition} AND m.enqueued < ? "
            "ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, *values, before, limit),
        )

    def unlocked(
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
        copies = self._copies(
            "m.entity = ? AND m.sub_queue = ? AND m.sequence > ? AND m.sequence <= ? AND m.stage = 0 "
            "AND m.enqueued < ? ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, after, _HIGHEST if last is None else last, before, limit),
        )
        return copies, copies[-1].sequence if len(copies) == limit else last

    # Changing

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

    def set_stage(self, copy: Copy, stage: Stage) -> None:
        """Move a message that is not locked to another stage."""
        self._counters.move(copy.entity, (copy.sub_queue, copy.stage), (copy.sub_queue, stage))
        self._execute("UPDATE message SET stage = ? WHERE id = ?", (stage, copy.id))

    def set_head(self, copy: Copy, head: bytes) -> None:
        """Replace a message's head and adjust its size."""
        row = self._execute("SELECT length(head) FROM content WHERE id = ?", (copy.id,)).fetchone()
        grown = len(head) - row[0]
        self._execute("UPDATE content SET head = ? WHERE id = ?", (head, copy.id))
        self._execute("UPDATE message SET size = size + ? WHERE id = ?", (grown, copy.id))
        self._counters.hold(copy.entity, copy.sub_queue, copy.stage, 0, grown)

    def dead_letter(
        self,
        copy: Copy,
        sub_queue: SubQueue,
        stage: Stage,
        reason: str | None,
        description: str | None,
        deliveries: int,
    ) -> None:
        """Move a message to a dead-letter queue of its entity, and set its number of deliveries."""
        if sub_queue is SubQueue.DEAD_LETTER and copy.sub_queue == SubQueue.MAIN:
            self._counters.count(copy.entity, "dead_lettered", 1)
        self._counters.move(copy.entity, (copy.sub_queue, copy.stage), (sub_queue, stage))
        self._execute(
            "UPDATE message SET sub_queue = ?, stage = ?, session_key = '', token = NULL, locked_until = NULL, "
            "reason = ?, description = ?, source = entity, deliveries = ? WHERE id = ?",
            (sub_queue, stage, reason, description, deliveries, copy.id),
        )

    def enqueue(
        self,
        copy: Copy,
        stage: Stage,
        key: str,
        sequence: int,
        enqueued: int,
        expires: int | None,
    ) -> None:
        """Turn a dead letter into a new message of its main queue, in place."""
        self._counters.move(copy.entity, (copy.sub_queue, copy.stage), (SubQueue.MAIN, stage))
        self._execute(
            "UPDATE message SET sub_queue = 0, stage = ?, session_key = ?, sequence = ?, enqueued = ?, expires = ?, "
            "deliveries = 0, reason = NULL, description = NULL, source = NULL WHERE id = ?",
            (stage, key, sequence, enqueued, expires, copy.id),
        )

    def send_back(self, copy: Copy, expires: int | None) -> None:
        """Mark a message that is not locked as returning through the inbox, with a new time of expiry."""
        self.set_stage(copy, Stage.RETURN)
        if expires != copy.expires:
            self._execute("UPDATE message SET expires = ? WHERE id = ?", (expires, copy.id))

    def claim(self, entity: int, sub_queue: SubQueue, limit: int) -> int:
        """Mark the first messages that are not locked as being forwarded. Return how many."""
        # By number across all sessions. The plus makes SQLite walk the index of numbers instead of sorting.
        claimed = self._copies(
            "m.entity = ? AND m.sub_queue = ? AND +m.stage = 0 ORDER BY m.sequence LIMIT ?",
            (entity, sub_queue, limit),
        )
        for copy in claimed:
            self.set_stage(copy, Stage.FORWARD)
        return len(claimed)

    def remove(self, copies: Sequence[Copy | Message], *, keep_body_file: bool = False) -> None:
        """Delete messages and their contents. With `keep_body_file`, the caller takes over the references."""
        sizes: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for copy in copies:
            sizes[copy[1:4]].append(copy.size)
            if copy.body_file is not None and not keep_body_file:
                self._body_files.release(copy.body_file)
        for place, of_place in sizes.items():
            self._counters.hold(*place, -len(of_place), -sum(of_place))
        for ids in portions([copy.id for copy in copies]):
            for table in ("message", "content"):
                self._execute(f"DELETE FROM {table} WHERE id IN ({_marks(len(ids))})", ids)

    def remove_all(self, entity: int) -> list[tuple[int, str]]:
        """Delete every message of an entity. The caller deletes its counters.

        Return (number, body file) of the messages that were leaving. Rows of the inbox may name these files, so the
        caller takes over the references.
        """
        leaving = []
        for sequence, stage, body_file in self._execute(
            "SELECT sequence, stage, body_file FROM message WHERE entity = ? AND body_file IS NOT NULL", (entity,)
        ).fetchall():
            if stage in LEAVING:
                leaving.append((sequence, body_file))
            else:
                self._body_files.release(body_file)
        self._execute("DELETE FROM content WHERE id IN (SELECT id FROM message WHERE entity = ?)", (entity,))
        self._execute("DELETE FROM message WHERE entity = ?", (entity,))
        return leaving

    def _copy(self, condition: str, values: tuple[Any, ...]) -> Copy | None:
        row = self._execute(f"SELECT {_COPY} FROM message m WHERE {condition}", values).fetchone()
        return None if row is None else Copy._make(row)

    def _copies(self, condition: str, values: tuple[Any, ...]) -> list[Copy]:
        return list(map(Copy._make, self._execute(f"SELECT {_COPY} FROM message m WHERE {condition}", values)))
