"""Handing messages out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncebus.store.base import StoreBase
from oncebus.store.rules import expire, is_expired, put_back
from oncebus.store.sessions import check_held
from oncebus.store.sql.tables import Tables
from oncebus.store.values import Copy, Message, Mode, Policy, SessionLock, Stage, SubQueue

_EXPIRED_AT_A_TIME = 500


class Receiving(StoreBase):
    """Messages for receivers and browsers."""

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
        """Up to `count` messages by sequence number: active, not held, not expired; of the held `session` if given.

        With `most_bytes` no more than are so large together, at least one; so too for the other ways to read.
        With peek-lock each bears a token and the end of its lock (in a session: the session's), and the attempt counts
        even if everything dies at once. So does one that is to be deleted while its body lies in a file: complete it
        when the body has been read. Raises `SessionLockLost`.
        """
        tables = self._change()
        lane, until = _turn(tables, entity, policy, now, session, sub_queue)
        for copy in tables.messages.run_out_of(entity, now):
            put_back(tables, copy, policy)
        limit = count
        while True:
            found = tables.messages.ready(entity, sub_queue, lane, limit, most_bytes)
            expired = [message for message in found if is_expired(message, now)]
            if not expired:
                return _hand_out(tables, found[:count], mode, Stage.LOCKED, until, session, self._token)
            for message in expired:
                expire(tables, Copy._make(message[: len(Copy._fields)]), policy)
            # Many have probably expired together: clear them away in larger steps.
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
        """The deferred messages with these numbers, in this order. One that is not there, or held, is left out."""
        tables = self._change()
        lane, until = _turn(tables, entity, policy, now, session, sub_queue)
        for copy in tables.messages.run_out_of(entity, now):
            put_back(tables, copy, policy)
        found: list[Message] = []
        size = 0
        for sequence in dict.fromkeys(sequences):
            at = tables.messages.at(entity, sub_queue, sequence)
            if at is not None and at.stage == Stage.DEFERRED and at.lane == lane and not is_expired(at, now):
                size += at.size
                if found and most_bytes is not None and size > most_bytes:
                    break
                found.append(tables.messages.full(at.id))
        return _hand_out(tables, found, mode, Stage.DEFERRED_LOCKED, until, session, self._token)

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
        """Messages in any state from a number on. Nothing is locked; what has expired is not shown."""
        return self._tables.messages.from_sequence(entity, sub_queue, from_sequence, count, now, session, most_bytes)


def _turn(
    tables: Tables, entity: int, policy: Policy, now: int, session: SessionLock | None, sub_queue: SubQueue
) -> tuple[str, int]:
    """From which lane to receive, and until when the locks hold. Dead letters are received without a session."""
    if session is None or sub_queue is not SubQueue.MAIN:
        return "", now + policy.lock_duration
    return session.session, check_held(tables, entity, session.session, session.token, now)


def _hand_out(
    tables: Tables,
    messages: list[Message],
    mode: Mode,
    stage: Stage,
    until: int,
    session: SessionLock | None,
    new_token: Callable[[], bytes],
) -> list[Message]:
    handed = [message._replace(deliveries=message.deliveries + 1) for message in messages]
    if mode is Mode.RECEIVE_AND_DELETE:
        tables.messages.remove([message for message in messages if message.blob is None])
    # One whose body has yet to be read is not deleted before that: reading may fail.
    handed = [
        message._replace(stage=int(stage), token=new_token(), locked_until=until)
        if mode is Mode.PEEK_LOCK or message.blob is not None
        else message
        for message in handed
    ]
    held = [message for message in handed if message.token is not None]
    # A message of a session is held for as long as the session is: it has no end of its own.
    in_session = session is not None and bool(held) and held[0].sub_queue == SubQueue.MAIN
    tables.messages.lock([message._replace(locked_until=None) for message in held] if in_session else held, stage)
    return handed
