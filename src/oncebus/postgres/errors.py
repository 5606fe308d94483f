"""Translates errors of the driver: the database is away, full, contended, or refuses."""

from __future__ import annotations

import psycopg

from oncebus.values.errors import NO_ROOM, NOT_READY, ErrorKind, OncebusError

_FULL = {"53100", "53200"}
_CONTENDED = {"40001", "40P01", "55P03"}
_AWAY = ("08", "57P")
"""The classes of a lost connection, and of a server that stops or starts."""


class DatabaseError(OncebusError):
    """The database cannot do what the broker needs."""


class DatabaseRefused(DatabaseError):
    """The database cannot be used: it has other tables, is too old, or rejects the login."""


class DatabaseAway(DatabaseError):
    """The database does not answer. Work continues when it is back."""

    kind = ErrorKind.BUSY
    told = NOT_READY


class DatabaseFull(DatabaseError):
    """The disk of the database is full. Nothing was changed."""

    kind = ErrorKind.BUSY
    told = NO_ROOM


class DatabaseConflict(DatabaseError):
    """A row has a value that another one has in a unique index."""


class DatabaseContended(DatabaseError):
    """Others held a lock for too long. Nothing was changed."""

    kind = ErrorKind.BUSY
    told = NOT_READY


def is_lost(error: psycopg.Error) -> bool:
    """Return whether a connection has ended, or the server has ended it."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    # 25P03: a transaction was idle for too long, for example because this process was paused.
    return state.startswith(_AWAY) or state == "25P03"


def explain(error: psycopg.Error, place: str) -> DatabaseError:
    """Return the error that tells the caller what happened."""
    text = " ".join(str(error).split()) or type(error).__name__
    if error.sqlstate in _FULL:
        return DatabaseFull(f"Database '{place}' has no room: {text}. Make room; nothing was changed.")
    if error.sqlstate in _CONTENDED:
        return DatabaseContended(f"Database '{place}' is contended: {text}")
    if isinstance(error, psycopg.IntegrityError):
        return DatabaseConflict(f"Database '{place}' refuses a row: {text}")
    if is_lost(error):
        return DatabaseAway(f"Database '{place}' is away: {text}")
    return DatabaseError(f"Database '{place}' failed: {text}")
