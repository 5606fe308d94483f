"""The messages that committed transactions sent and that are not in the inbox yet."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.values import Pending

_COLUMNS = ", ".join(Pending._fields)
_LAST = "pending"


class PendingTable:
    """Pending messages by transaction. The number of its first message identifies a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def take_numbers(self, count: int) -> int:
        """Return the first of `count` numbers that were never used before and never will be again."""
        row = self._execute(
            "INSERT INTO progress (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = progress.value + excluded.value RETURNING value",
            (_LAST, count),
        ).fetchone()
        return int(row[0]) - count + 1

    def add(self, messages: Sequence[Pending]) -> None:
        """Add messages."""
        marks = f"({', '.join('?' * len(Pending._fields))})"
        self._connection.execute_values(f"INSERT INTO pending ({_COLUMNS}) VALUES", marks, messages)

    def last(self) -> int:
        """Return the highest number of a pending message; 0 if there is none."""
        return int(self._execute("SELECT coalesce(max(number), 0) FROM pending").fetchone()[0])

    def following(self, after: int, through: int) -> list[Pending]:
        """Return the messages of the first transaction with numbers above `after`, if they are up to `through`."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM pending WHERE number <= ? AND committed = "
            "(SELECT committed FROM pending WHERE number > ? ORDER BY number LIMIT 1) ORDER BY number",
            (through, after),
        )
        return [Pending._make(row) for row in rows]

    def remove(self, committed: int) -> list[tuple[int, str | None]]:
        """Delete the messages of a transaction. Return the number and the body file of each."""
        return self._execute(
            "DELETE FROM pending WHERE committed = ? RETURNING number, body_file", (committed,)
        ).fetchall()
