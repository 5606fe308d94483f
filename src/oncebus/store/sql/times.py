"""Moving times in the future back to now: for a repair, never while a broker runs."""

from __future__ import annotations

from oncebus.store.sql.connection import Connection

_MOVED = (
    ("highest", "time"),
    ("dropped", "time"),
    ("dropped", "original_time"),
    ("quarantine", "time"),
    ("session", "updated"),
)


def bring_back(connection: Connection, now: int, longest_lock: int) -> int:
    """See `Store.bring_back`."""
    execute = connection.execute
    # The message keeps the time to live that it had when it was enqueued.
    execute("UPDATE message SET expires = expires - (enqueued - ?1) WHERE enqueued > ?1", (now,))
    moved = execute("UPDATE message SET enqueued = ?1 WHERE enqueued > ?1", (now,)).rowcount
    for table in ("message", "session"):
        execute(f"UPDATE {table} SET locked_until = ?1 WHERE locked_until > ?1", (now + longest_lock,))
    for table, column in _MOVED:
        execute(f"UPDATE {table} SET {column} = ?1 WHERE {column} > ?1", (now,))
    execute("UPDATE progress SET value = ?1 WHERE name IN ('time', 'judged') AND value > ?1", (now,))
    return moved
