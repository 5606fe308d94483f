"""The connection to PostgreSQL. No other package imports the driver. No command uses it yet."""

from oncebus.postgres.connecting import open_connection, tell_place
from oncebus.postgres.errors import (
    DatabaseAway,
    DatabaseConflict,
    DatabaseContended,
    DatabaseError,
    DatabaseFull,
    DatabaseRefused,
)
from oncebus.postgres.link import Cursor, Link

__all__ = [
    "Cursor",
    "DatabaseAway",
    "DatabaseConflict",
    "DatabaseContended",
    "DatabaseError",
    "DatabaseFull",
    "DatabaseRefused",
    "Link",
    "open_connection",
    "tell_place",
]
