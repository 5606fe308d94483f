"""The dropped duplicates. Those of an entity have numbers without gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oncebus.engine.store.records import Duplicate
from oncebus.engine.store.sql.connection import Connection, lists

_COLUMNS = ", ".join(Duplicate._fields)


class DuplicateTable:
    """The rows of dropped duplicates."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def add(self, duplicates: Iterable[tuple[Any, ...]]) -> None:
        """Add duplicates, as tuples with the fields of `Duplicate`."""
        self._connection.execute_values(
            f"INSERT INTO dropped ({_COLUMNS}) VALUES", "(?, ?, ?, ?, ?, ?, ?, ?, ?)", duplicates
        )

    def page(
        self, entity: int, message_id: str | None, since: int | None, limit: int, after: int | None
    ) -> list[Duplicate]:
        """Return an entity's duplicates, oldest first."""
        condition, values = "entity = ? AND number > ?", list[Any]([entity, after or 0])
        if message_id is not None:
            condition += " AND message_id = ?"
            values.append(message_id)
        if since is not None:
            condition += " AND time >= ?"
            values.append(since)
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM dropped WHERE {condition} ORDER BY number LIMIT ?", (*values, limit)
        )
        return [Duplicate._make(row) for row in rows]

    def newest(self, entity: int, before: int | None, limit: int) -> list[Duplicate]:
        """Return an entity's duplicates with numbers below `before`, newest first."""
        condition = "entity = ?" if before is None else "entity = ? AND number < ?"
        values = (entity,) if before is None else (entity, before)
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM dropped WHERE {condition} ORDER BY number DESC LIMIT ?", (*values, limit)
        )
        return [Duplicate._make(row) for row in rows]

    def newest_with_id(self, entity: int, message_id: str, limit: int) -> list[Duplicate]:
        """Return an entity's duplicates with this id, newest first."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM dropped WHERE entity = ? AND message_id = ? ORDER BY number DESC LIMIT ?",
            (entity, message_id, limit),
        )
        return [Duplicate._make(row) for row in rows]

    def first_from(self, entity: int, number: int) -> tuple[int, int] | None:
        """Return (number, time) of the first duplicate of an entity from a number on; None if there is none."""
        row = self._execute(
            "SELECT number, time FROM dropped WHERE entity = ? AND number >= ? ORDER BY number LIMIT 1",
            (entity, number),
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def originals(self, entity: int, message_ids: Sequence[str], after: int, through: int) -> list[tuple[int, int]]:
        """Return the sequence numbers of duplicates with these ids, each with that of its original.

        Reads only duplicates with numbers above `after` and up to `through`.
        """
        found: list[tuple[int, int]] = []
        for marks, some in lists(message_ids):
            # The index `dropped_id` finds the ids and, within each, the numbers.
            found += self._execute(
                "SELECT sequence, original_sequence FROM dropped WHERE entity = ? "
                f"AND message_id IN ({marks}) AND number > ? AND number <= ? "
                "AND original_sequence IS NOT NULL",
                (entity, *some, after, through),
            )
        return found

    def oldest(self, entity: int, limit: int) -> list[tuple[int, int]]:
        """Return (number, time) of the oldest duplicates of an entity."""
        return self._execute(
            "SELECT number, time FROM dropped WHERE entity = ? ORDER BY number LIMIT ?", (entity, limit)
        ).fetchall()

    def next_entity(self, after: int) -> int | None:
        """Return the entity with the next higher id that has duplicates; None if there is none."""
        row = self._execute("SELECT min(entity) FROM dropped WHERE entity > ?", (after,)).fetchone()
        return None if row[0] is None else int(row[0])

    def forget_through(self, entity: int, through: int) -> None:
        """Forget an entity's duplicates up to a number."""
        self._execute("DELETE FROM dropped WHERE entity = ? AND number <= ?", (entity, through))

    def delete_all(self, entity: int) -> None:
        """Delete all duplicates of an entity."""
        self._execute("DELETE FROM dropped WHERE entity = ?", (entity,))
