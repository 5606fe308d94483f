"""The messages of entities: receiving, browsing, searching and deleting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.records import Found
from oncebus.engine.store.sessions import check_held
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.tokens import LockTokens
from oncebus.engine.store.unsettled import complete, discard, discard_all, expire, is_expired, policy_of, put_back
from oncebus.engine.store.values import Copy, Message, Mode, Policy, SessionLock, Stage, SubQueue, Sweep
from oncebus.model.entities.names import session_key

_EXPIRED_AT_A_TIME = 500


class Messages:
    """Messages for receivers, browsers and people who search."""

    def __init__(self, tables: Tables, tokens: LockTokens) -> None:
        self._tables = tables
        self._tokens = tokens

    def receive(
        self,
        entity: int,
        count: int,
        mode: Mode,
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Receive up to `count` active messages by number; with `session`, only those of that locked session.

        `most_bytes` limits their total size, but a single message may exceed it; the same holds for the other methods.
        With peek-lock each message has a token and the end of its lock (in a session, the end of the session's lock),
        and the delivery counts even if the process dies at once, except in a dead-letter queue, where none counts.
        Receive-and-delete locks a message with a body file in the same way: complete it when the body has been read.
        Raises `SessionLockLost`.
        """
        tables = self._tables.for_change()
        key, until = _begin(tables, entity, policy, now, session, sub_queue)
        limit = count
        while True:
            found = tables.messages.ready(entity, sub_queue, key, limit, most_bytes)
            expired = [message for message in found if message.expires is not None and is_expired(message, now)]
            if not expired:
                return _hand_out(tables, found[:count], mode, Stage.LOCKED, until, session, self._tokens)
            for message in expired:
                expire(tables, Copy._make(message[: len(Copy._fields)]), policy)
            # Probably many expired together: continue in larger steps.
            limit = max(count, _EXPIRED_AT_A_TIME)

    def receive_deferred(
        self,
        entity: int,
        sequences: Sequence[int],
        mode: Mode,
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Receive the deferred messages with these numbers, in this order.

        Leaves out messages that are missing or locked.
        """
        tables = self._tables.for_change()
        key, until = _begin(tables, entity, policy, now, session, sub_queue)
        found: list[Message] = []
        size = 0
        for sequence in dict.fromkeys(sequences):
            at = tables.messages.at(entity, sub_queue, sequence)
            if at is not None and at.stage == Stage.DEFERRED and at.session_key == key and not is_expired(at, now):
                size += at.size
                if found and most_bytes is not None and size > most_bytes:
                    break
                found.append(tables.messages.full(at.id))
        return _hand_out(tables, found, mode, Stage.DEFERRED_LOCKED, until, session, self._tokens)

    def peek(
        self,
        entity: int,
        from_sequence: int,
        count: int,
        now: int,
        session: str | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Return messages in any state from a sequence number on, except expired ones. Locks nothing."""
        return self._tables.messages.from_sequence(entity, sub_queue, from_sequence, count, now, session, most_bytes)

    def expire(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Delete or dead-letter expired messages. Receivers never get an expired message, even before this runs."""
        tables = self._tables.for_change()
        sweep = Sweep()
        copies = tables.messages.find_expired(now, limit)
        for copy in copies:
            expire(tables, copy, policy_of(policies, copy.entity))
        sweep.handled, sweep.more = len(copies), len(copies) == limit
        return sweep

    def search(
        self,
        entity: int,
        sub_queue: SubQueue,
        start: int,
        most_read: int,
        message_id: str | None = None,
        session: str | None = None,
    ) -> tuple[list[int], int | None]:
        """Return the sequence numbers of matching messages among the next `most_read`, and where to go on, or None."""
        return self._tables.searches.search(entity, sub_queue, start, most_read, message_id, session)

    def search_everywhere(self, message_id: str, before: int, most_read: int) -> tuple[list[Found], int | None]:
        """Search the messages of all entities, newest first. Return the matches, and the `before` to go on, or None."""
        return self._tables.searches.search_everywhere(message_id, before, most_read)

    def at(self, entity: int, sequences: Sequence[int]) -> list[Found]:
        """Return the messages of an entity with these sequence numbers that are still there, dead letters included."""
        return self._tables.searches.with_sequences(entity, sequences)

    def delete_oldest(
        self,
        entity: int,
        enqueued_before: int,
        count: int,
        sub_queue: SubQueue = SubQueue.MAIN,
        session: str | None = None,
    ) -> int:
        """Delete the oldest active messages that nobody has locked, of all sessions or of one.

        Return how many were deleted.
        """
        tables = self._tables.for_change()
        key = None if session is None else session_key(session)
        copies = tables.searches.oldest(entity, sub_queue, enqueued_before, count, key)
        for copy in copies:
            discard(tables, copy)
        return len(copies)

    def purge(
        self, entity: int, enqueued_before: int, count: int, sub_queue: SubQueue, after: int, most_read: int
    ) -> tuple[int, int | None]:
        """Delete up to `count` active messages that nobody has locked, with numbers above `after`.

        Reads at most `most_read` messages. Return how many were deleted, and the `after` for the next call; None if
        there are no more.
        """
        tables = self._tables.for_change()
        copies, following = tables.searches.find_unlocked(entity, sub_queue, after, enqueued_before, count, most_read)
        discard_all(tables, copies)
        return len(copies), following


def _begin(
    tables: Tables, entity: int, policy: Policy, now: int, session: SessionLock | None, sub_queue: SubQueue
) -> tuple[str, int]:
    """Put back the messages whose locks have expired.

    Return the key of the session to receive from, and when new locks expire. Dead letters have no session. Raises
    `SessionLockLost`.
    """
    if session is None or sub_queue is not SubQueue.MAIN:
        key, until = "", now + policy.lock_duration
    else:
        key, until = session.key, check_held(tables, session, now)
    for copy in tables.locks.expired_locks_of(entity, now):
        put_back(tables, copy, policy)
    return key, until


def _hand_out(
    tables: Tables,
    messages: list[Message],
    mode: Mode,
    stage: Stage,
    until: int,
    session: SessionLock | None,
    tokens: LockTokens,
) -> list[Message]:
    counted = 1 if messages and messages[0].sub_queue == SubQueue.MAIN else 0
    if counted:
        tables.counters.count(messages[0].entity, "outgoing", len(messages))
    if mode is Mode.RECEIVE_AND_DELETE:
        complete(tables, [message for message in messages if message.body_file is None])
    locked = int(stage)
    handed = [
        message.handed_out(message.deliveries + counted, locked, token, until)
        # A message with a body file is not deleted before the file has been read: reading may fail.
        if mode is Mode.PEEK_LOCK or message.body_file is not None
        else message.handed_out(message.deliveries + counted, message.stage, message.token, message.locked_until)
        for message, token in zip(messages, tokens.take(len(messages)), strict=True)
    ]
    held = [message for message in handed if message.token is not None]
    # A message of a session is locked as long as the session is: its lock has no end of its own.
    in_session = session is not None and bool(held) and held[0].sub_queue == SubQueue.MAIN
    tables.locks.lock([message._replace(locked_until=None) for message in held] if in_session else held, stage)
    return handed
