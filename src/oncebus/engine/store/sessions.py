"""Locks sessions. While a session is locked, so are the messages received in it."""

from __future__ import annotations

from dataclasses import replace

from oncebus.engine.store.errors import SessionCannotBeLocked, SessionLockLost
from oncebus.engine.store.sql.sessions import SessionRow
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.tokens import LockTokens
from oncebus.engine.store.unsettled import expire, is_expired, put_back
from oncebus.engine.store.values import Place, Policy, SessionLock, SubQueue
from oncebus.model.entities.names import session_key


class Sessions:
    """Sessions, their locks and their state."""

    def __init__(self, tables: Tables, tokens: LockTokens) -> None:
        self._tables = tables
        self._tokens = tokens

    def accept(self, entity: int, session: str | None, policy: Policy, now: int) -> SessionLock | None:
        """Lock a session.

        If `session` is None, lock the free one with the oldest message, or return None if there is none.

        Raises `SessionCannotBeLocked` if another receiver has locked the named session.
        """
        tables = self._tables.for_change()
        for row in tables.sessions.expired_locks_of(entity, now):
            give_back(tables, row, policy)
        if session is None:
            session = _next_free(tables, entity, policy, now)
            if session is None:
                return None
        else:
            found = tables.sessions.get(entity, session_key(session))
            if found is not None and found.token is not None:
                raise SessionCannotBeLocked(
                    f"Session '{session}' of entity {entity} is held by another receiver until {found.locked_until}."
                )
        lock = SessionLock(entity, session, self._tokens.take(1)[0], now + policy.lock_duration)
        tables.sessions.hold(lock)
        return lock

    def renew(self, lock: SessionLock, policy: Policy, now: int) -> SessionLock:
        """Renew the lock of a session and of the messages received in it. Raises `SessionLockLost`."""
        tables = self._tables.for_change()
        until = max(check_held(tables, lock, now), now + policy.lock_duration)
        held = replace(lock, locked_until=until)
        tables.sessions.hold(held)
        return held

    def release(self, lock: SessionLock, policy: Policy) -> None:
        """Release a session and put back the messages that were received in it and not settled.

        Does nothing if the lock is lost.
        """
        tables = self._tables.for_change()
        row = tables.sessions.get(lock.entity, lock.key)
        if row is not None and row.token == lock.token:
            give_back(tables, row, policy)

    def state(self, entity: int, session: str) -> bytes | None:
        """Return the state of a session; None if it has none."""
        row = self._tables.sessions.get(entity, session_key(session))
        return None if row is None else row.state

    def check(self, lock: SessionLock, now: int) -> None:
        """Raise `SessionLockLost` unless a session is still locked."""
        check_held(self._tables, lock, now)

    def set_state(self, lock: SessionLock, state: bytes | None, now: int) -> None:
        """Replace the state of a locked session. Raises `SessionLockLost`."""
        tables = self._tables.for_change()
        check_held(tables, lock, now)
        tables.sessions.set_state(lock.entity, lock.key, state, now)

    def names(self, entity: int, limit: int, updated_since: int | None = None, after: str | None = None) -> list[str]:
        """List the sessions that have messages or state, by name.

        With `updated_since`, list those whose state was set after it.
        """
        return self._tables.sessions.names(entity, updated_since, None if after is None else session_key(after), limit)


def is_held(tables: Tables, entity: int, key: str, token: bytes | None, now: int) -> bool:
    """Return whether a session is locked. If `token` is given, return whether it is locked with that token."""
    row = tables.sessions.get(entity, key)
    return row is not None and row.locked_until is not None and now < row.locked_until and token in (None, row.token)


def check_held(tables: Tables, lock: SessionLock, now: int) -> int:
    """Return when the session's lock expires. Raises `SessionLockLost` unless it is locked with this token."""
    row = tables.sessions.get(lock.entity, lock.key)
    if row is None or row.token != lock.token or row.locked_until is None or row.locked_until <= now:
        raise SessionLockLost(
            f"Session '{lock.session}' of entity {lock.entity} is not held under this lock. Accept it again."
        )
    return row.locked_until


def give_back(tables: Tables, row: SessionRow, policy: Policy) -> None:
    """Unlock a session and put back the messages received in it."""
    for copy in tables.locks.held_in_session(row.entity, row.key):
        put_back(tables, copy, policy)
    first = tables.messages.first_ready(row.entity, row.key)
    tables.sessions.free(row.entity, row.key, None if first is None else first.sequence)
    if first is None:
        tables.sessions.delete_idle(row.entity, row.key)
    else:
        tables.arrivals.add(Place(row.entity, SubQueue.MAIN))


def _next_free(tables: Tables, entity: int, policy: Policy, now: int) -> str | None:
    """Return the name of the free session with the oldest message to receive; None if there is none.

    The search ends, because each step corrects the recorded head of a session or expires a message.
    """
    while (row := tables.sessions.next_free(entity)) is not None:
        first = tables.messages.first_ready(entity, row.key)
        if first is None:
            tables.sessions.set_head(entity, row.key, None)
            tables.sessions.delete_idle(entity, row.key)
        elif is_expired(first, now):
            expire(tables, first, policy)
        elif first.sequence != row.head:
            tables.sessions.set_head(entity, row.key, first.sequence)
        else:
            return row.name
    return None
