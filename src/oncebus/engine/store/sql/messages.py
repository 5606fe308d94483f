"""Messages and their content. Each change also updates the counters and the reference counts of body files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from oncebus.engine.store.records import Quarantined
from oncebus.engine.store.sql.body_files import BodyFileTable
from oncebus.engine.store.sql.connection import Answer, Connection, Execute, lists
from oncebus.engine.store.sql.counters import Counters
from oncebus.engine.store.values import LEAVING, Copy, Message, Stage, SubQueue
from oncebus.model.entities.names import session_key

_SPLIT = 2**62
_COPY = ", ".join(f"m.{name}" for name in Copy._fields)
_FULL = (
    f"{_COPY}, m.enqueued_sequence, m.reason, m.description, m.source, m.origin, "
    "c.message_id, c.session, c.partition_key, c.head, c.body"
)
_WITH_CONTENT = "FROM message m JOIN content c ON c.id = abs(m.content) WHERE"
_READY = f"{_WITH_CONTENT} m.entity = ? AND m.sub_queue = ? AND m.stage = 0 AND m.session_key = ?"


def _fitting(rows: Answer, most_bytes: int | None) -> list[Message]:
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


def _count_fitting(sizes: Iterable[int], most_bytes: int) -> int:
    """Return how many messages, at least one, come first with a total of `most_bytes`."""
    number = total = 0
    for size in sizes:
        total += size
        if number and total > most_bytes:
            break
        number += 1
    return max(number, 1)


def _marks(number: int) -> str:
    return ", ".join("?" * number)


def copy_where(execute: Execute, condition: str, values: Sequence[Any]) -> Copy | None:
    """Return the first message for which a condition on table `message`, called m, holds."""
    row = execute(f"SELECT {_COPY} FROM message m WHERE {condition}", values).fetchone()
    return None if row is None else Copy._make(row)


def copies_where(execute: Execute, condition: str, values: Sequence[Any]) -> list[Copy]:
    """Return the messages for which a condition on table `message`, called m, holds."""
    return list(map(Copy._make, execute(f"SELECT {_COPY} FROM message m WHERE {condition}", values)))


class MessageTable:
    """The rows of all messages. There are no rules here: callers decide what may happen."""

    def __init__(self, connection: Connection, counters: Counters, body_files: BodyFileTable) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._counters = counters
        self._body_files = body_files

    def next_id(self) -> int:
        """Return an id above all ids in use."""
        return int(self._execute("SELECT coalesce(max(id), 0) + 1 FROM message").fetchone()[0])

    def insert(
        self,
        messages: Iterable[tuple[Any, ...]],
        contents: Iterable[tuple[Any, ...]],
        shared: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add rows in the layout of `oncebus.engine.store.copies`. The caller must update the counters."""
        self._connection.execute_values(
            "INSERT INTO message (id, entity, sub_queue, stage, session_key, sequence, enqueued_sequence, enqueued, "
            "expires, scheduled, hops, size, reason, description, source, origin, body_file, content, deliveries) "
            "VALUES",
            f"({_marks(18)}, 0)",
            messages,
        )
        self._connection.execute_values(
            "INSERT INTO content (id, message_id, session, partition_key, head, body) VALUES",
            f"({_marks(6)})",
            contents,
        )
        self._connection.execute_values("INSERT INTO shared (content, copies) VALUES", "(?, ?)", shared)

    def schedule(self, row: Quarantined, key: str, when: int) -> None:
        """Turn a quarantined row into a scheduled message. The caller must update the counters."""
        id_, waits = self.next_id(), (SubQueue.MAIN, Stage.SCHEDULED)
        placed = (id_, row.entity, *waits, key, row.sequence, row.sequence, row.time)
        self.insert(
            [(*placed, None, when, 0, row.size, None, None, None, None, row.body_file, id_)],
            [(id_, row.message_id, row.session, row.partition_key, row.head, row.body)],
        )

    # Finding

    def ready(self, entity: int, sub_queue: int, key: str, limit: int, most_bytes: int | None = None) -> list[Message]:
        """Return the first messages that are not locked, including expired ones."""
        return self._first(_READY, (entity, sub_queue, key), limit, most_bytes)

    def first_ready(self, entity: int, key: str) -> Copy | None:
        """Return the first message of a session that is not locked."""
        return copy_where(
            self._execute,
            "m.entity = ? AND m.sub_queue = 0 AND m.stage = 0 AND m.session_key = ? ORDER BY m.sequence LIMIT 1",
            (entity, key),
        )

    def at(self, entity: int, sub_queue: int, sequence: int) -> Copy | None:
        """Return the message with this sequence number, in any stage."""
        return copy_where(
            self._execute, "m.entity = ? AND m.sub_queue = ? AND m.sequence = ?", (entity, sub_queue, sequence)
        )

    def full(self, id_: int) -> Message:
        """Return a message with its content."""
        row = self._execute(
            f"SELECT {_FULL} FROM message m JOIN content c ON c.id = abs(m.content) WHERE m.id = ?", (id_,)
        )
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
        condition += " AND m.stage IN (0, 1, 2, 3, 5, 6) AND (m.sub_queue <> 0 OR m.expires IS NULL OR m.expires > ?)"
        return self._first(f"{_WITH_CONTENT} {condition}", (*values, *more, now), limit, most_bytes)

    def _first(self, found: str, values: Sequence[Any], limit: int, most_bytes: int | None) -> list[Message]:
        """Return the first messages by number, up to a total of `most_bytes`, but at least one."""
        if most_bytes is not None and self._connection.is_shared:
            # A statement's answer comes as a whole, so first see how many fit.
            sizes = self._execute(f"SELECT m.size {found} ORDER BY m.sequence LIMIT ?", (*values, limit))
            limit = _count_fitting((size for (size,) in sizes), most_bytes)
        rows = self._execute(f"SELECT {_FULL} {found} ORDER BY m.sequence LIMIT ?", (*values, limit))
        return _fitting(rows, most_bytes)

    def find_expired(self, now: int, limit: int) -> list[Copy]:
        """Return expired messages of main queues that are not locked."""
        return copies_where(
            self._execute,
            "m.expires IS NOT NULL AND m.sub_queue = 0 AND m.stage < 3 AND m.expires <= ? ORDER BY m.expires LIMIT ?",
            (now, limit),
        )

    def due(self, now: int, limit: int) -> list[Copy]:
        """Return scheduled messages whose time has come, earliest first."""
        return copies_where(
            self._execute, "m.stage = 2 AND m.scheduled <= ? ORDER BY m.scheduled, m.sequence LIMIT ?", (now, limit)
        )

    def next_due(self, now: int) -> int | None:
        """Return the first time after `now` at which a scheduled message falls due."""
        row = self._execute(
            "SELECT scheduled FROM message WHERE stage = 2 AND scheduled > ? ORDER BY scheduled LIMIT 1", (now,)
        ).fetchone()
        return None if row is None else int(row[0])

    # Changing

    def set_stage(self, copy: Copy, stage: Stage) -> None:
        """Move a message that is not locked to another stage."""
        self._counters.move(copy.entity, (copy.sub_queue, copy.stage), (copy.sub_queue, stage))
        self._execute("UPDATE message SET stage = ? WHERE id = ?", (stage, copy.id))

    def set_head(self, copy: Copy, head: bytes) -> None:
        """Replace a message's head and adjust its size. The other copies of the message keep theirs."""
        row = self._execute("SELECT length(head) FROM content WHERE id = ?", (abs(copy.content),)).fetchone()
        grown, content = len(head) - row[0], copy.content
        if content > 0:
            self._execute("UPDATE content SET head = ? WHERE id = ?", (head, content))
        else:
            # The other copies may use the content with this copy's id.
            content = _SPLIT + copy.id
            self._execute(
                "INSERT INTO content (id, message_id, session, partition_key, head, body) "
                "SELECT ?, message_id, session, partition_key, ?, body FROM content WHERE id = ?",
                (content, head, -copy.content),
            )
            self._release_shared([-copy.content])
        self._execute("UPDATE message SET size = size + ?, content = ? WHERE id = ?", (grown, content, copy.id))
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

    def remove(self, copies: Sequence[Copy | Message], *, keep_body_file: bool = False) -> None:
        """Delete messages and their contents. With `keep_body_file`, the caller takes over the references."""
        sizes: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        own, shared = list[int](), list[int]()
        for copy in copies:
            sizes[copy[1:4]].append(copy.size)
            (own if copy.content > 0 else shared).append(abs(copy.content))
        for place, of_place in sizes.items():
            self._counters.hold(*place, -len(of_place), -sum(of_place))
        if not keep_body_file:
            self._body_files.release_all(copy.body_file for copy in copies)
        for marks, ids in lists([copy.id for copy in copies]):
            self._execute(f"DELETE FROM message WHERE id IN ({marks})", ids)
        self._delete_contents(own)
        if shared:
            self._release_shared(shared)

    def _release_shared(self, contents: Sequence[int]) -> None:
        """Remove a reference to a content for each time that it is named. Delete contents without references."""
        left = Counter(contents)
        while left:
            for marks, some in lists(list(left)):
                self._execute(f"UPDATE shared SET copies = copies - 1 WHERE content IN ({marks})", some)
            left = Counter({content: number - 1 for content, number in left.items() if number > 1})
        for marks, some in lists(list(dict.fromkeys(contents))):
            unused = f"DELETE FROM shared WHERE content IN ({marks}) AND copies = 0 RETURNING content"
            self._delete_contents([content for (content,) in self._execute(unused, some).fetchall()])

    def _delete_contents(self, contents: Sequence[int]) -> None:
        for marks, some in lists(contents):
            self._execute(f"DELETE FROM content WHERE id IN ({marks})", some)

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
                self._body_files.release_all([body_file])
        self._execute(
            "UPDATE shared SET copies = shared.copies - gone.number FROM (SELECT -content AS content, "
            "count(*) AS number FROM message WHERE entity = ? AND content < 0 GROUP BY content) AS gone "
            "WHERE gone.content = shared.content",
            (entity,),
        )
        self._execute("DELETE FROM content WHERE id IN (SELECT content FROM shared WHERE copies = 0)")
        self._execute("DELETE FROM shared WHERE copies = 0")
        self._execute(
            "DELETE FROM content WHERE id IN (SELECT content FROM message WHERE entity = ? AND content > 0)", (entity,)
        )
        self._execute("DELETE FROM message WHERE entity = ?", (entity,))
        return leaving
