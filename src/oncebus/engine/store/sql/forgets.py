"""The forgets: message ids that somebody let the broker forget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncebus.engine.store.records import Forget
from oncebus.engine.store.sql.connection import Connection

_COLUMNS = ", ".join(Forget._fields)


class ForgetTable:
    """The rows of forgets."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def add(self, forgets: Iterable[tuple[Any, ...]]) -> None:
        """Add forgets, as tuples with the fields of `Forget` except its number."""
        columns = ", ".join(Forget._fields[1:])
        marks = ", ".join("?" * (len(Forget._fields) - 1))
        self._connection.executemany(f"INSERT INTO forgotten ({columns}) VALUES ({marks})", forgets)

    def keep_newest(self, entity: int, count: int) -> None:
        """Delete all forgets of an entity but the newest ones."""
        self._execute(
            "DELETE FROM forgotten WHERE entity = ? AND number <= "
            "(SELECT number FROM forgotten WHERE entity = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (entity, entity, count),
        )

    def page(self, entity: int, limit: int, after: int) -> list[Forget]:
        """Return an entity's forgets, oldest first."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM forgotten WHERE entity = ? AND number > ? ORDER BY number LIMIT ?",
            (entity, after, limit),
        )
        return [Forget._make(row) for row in rows]

    def at(self, entity: int, sequence: int) -> Forget | None:
        """Return the forget of an entity with this sequence number; None if there is none."""
        row = self._execute(
            f"SELECT {_COLUMNS} FROM forgotten WHERE entity = ? AND sequence = ?", (entity, sequence)
        ).fetchone()
        return None if row is None else Forget._make(row)

    def newest(self, entity: int, limit: int) -> list[Forget]:
        """Return an entity's newest forgets, newest first."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM forgotten WHERE entity = ? ORDER BY number DESC LIMIT ?", (entity, limit)
        )
        return [Forget._make(row) for row in rows]

    def delete_all(self, entity: int) -> None:
        """Delete all forgets of an entity."""
        self._execute("DELETE FROM forgotten WHERE entity = ?", (entity,))
