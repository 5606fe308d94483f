"""The connection to PostgreSQL: the one place that imports its driver. Nothing here runs without `--database`."""

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
