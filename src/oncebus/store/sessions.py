"""Holding sessions. While a session is held, so are the messages received in it."""

from __future__ import annotations

from oncebus.store.base import StoreBase
from oncebus.store.errors import SessionCannotBeLocked, SessionLockLost
from oncebus.store.rules import expire, is_expired, put_back
from oncebus.store.sql.sessions import SessionRow
from oncebus.store.sql.tables import Tables
from oncebus.store.values import Place, Policy, SessionLock, SubQueue, Sweep


class Sessions(StoreBase):
    """Sessions, their locks and their state."""

    def accept_session(self, entity: int, session: str | None, policy: Policy, now: int) -> SessionLock | None:
        """Hold a session; without a name, the free one with the oldest message, None where there is none.

        Raises `SessionCannotBeLocked` where the named one is held.
        """
        tables = self._change()
        for row in tables.sessions.run_out_of(entity, now):
            give_back(tables, row, policy)
        if session is None:
            session = _next_free(tables, entity, policy, now)
            if session is None:
                return None
        else:
            found = tables.sessions.get(entity, session)
            if found is not None and found.token is not None:
                raise SessionCannotBeLocked(
                    f"Session '{session}' of entity {entity} is held by another receiver until {found.locked_until}."
                )
        lock = SessionLock(entity, session, self._token(), now + policy.lock_duration)
        tables.sessions.hold(entity, session, lock.token, lock.locked_until)
        return lock

    def renew_session(self, lock: SessionLock, policy: Policy, now: int) -> SessionLock:
        """Hold a session and what was received in it longer. Raises `SessionLockLost`."""
        tables = self._change()
        until = max(check_held(tables, lock.entity, lock.session, lock.token, now), now + policy.lock_duration)
        tables.sessions.hold(lock.entity, lock.session, lock.token, until)
        return SessionLock(lock.entity, lock.session, lock.token, until)

    def release_session(self, lock: SessionLock, policy: Policy) -> Sweep:
        """Let a session go; what was received in it and not settled is put back. A lock that is lost is no error."""
        tables = self._change()
        row = tables.sessions.get(lock.entity, lock.session)
        if row is None or row.token != lock.token:
            return Sweep()
        return Sweep(arrived=give_back(tables, row, policy))

    def session_state(self, entity: int, session: str) -> bytes | None:
        """The state of a session."""
        row = self._tables.sessions.get(entity, session)
        return None if row is None else row.state

    def set_session_state(self, lock: SessionLock, state: bytes | None, now: int) -> None:
        """Replace the state of a session that is held. Raises `SessionLockLost`."""
        tables = self._change()
        check_held(tables, lock.entity, lock.session, lock.token, now)
        tables.sessions.set_state(lock.entity, lock.session, state, now)

    def list_sessions(
        self, entity: int, limit: int, updated_since: int | None = None, after: str | None = None
    ) -> list[str]:
        """Sessions with messages or state, by name; or those whose state was set at a time or later."""
        return self._tables.sessions.names(entity, updated_since, after, limit)


def is_held(tables: Tables, entity: int, session: str, token: bytes | None, now: int) -> bool:
    """Whether a session is held, and by this token where one is given."""
    row = tables.sessions.get(entity, session)
    return row is not None and row.locked_until is not None and now < row.locked_until and token in (None, row.token)


def check_held(tables: Tables, entity: int, session: str, token: bytes, now: int) -> int:
    """Until when a session is held under this token. Raises `SessionLockLost`."""
    row = tables.sessions.get(entity, session)
    if row is None or row.token != token or row.locked_until is None or row.locked_until <= now:
        raise SessionLockLost(f"Session '{session}' of entity {entity} is not held under this lock. Accept it again.")
    return row.locked_until


def give_back(tables: Tables, row: SessionRow, policy: Policy) -> set[Place]:
    """End a session's lock and put back what was received in it. Answers where messages can be received now."""
    places = {
        place
        for copy in tables.messages.held_in_lane(row.entity, row.session)
        if (place := put_back(tables, copy, policy)) is not None
    }
    first = tables.messages.first_ready(row.entity, row.session)
    tables.sessions.free(row.entity, row.session, None if first is None else first.sequence)
    if first is None:
        tables.sessions.delete_idle(row.entity, row.session)
    else:
        places.add(Place(row.entity, SubQueue.MAIN))
    return places


def _next_free(tables: Tables, entity: int, policy: Policy, now: int) -> str | None:
    """The free session with the oldest message to receive. Each turn of the loop mends a head or ends a message."""
    while (row := tables.sessions.next_free(entity)) is not None:
        first = tables.messages.first_ready(entity, row.session)
        if first is None:
            tables.sessions.set_head(entity, row.session, None)
            tables.sessions.delete_idle(entity, row.session)
        elif is_expired(first, now):
            expire(tables, first, policy)
        elif first.sequence != row.head:
            tables.sessions.set_head(entity, row.session, first.sequence)
        else:
            return row.session
    return None
