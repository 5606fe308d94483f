"""The quarantined rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncebus.engine.store.records import Quarantined
from oncebus.engine.store.sql.body_files import BodyFileTable
from oncebus.engine.store.sql.connection import Connection

_COLUMNS = ", ".join(Quarantined._fields)


class QuarantineTable:
    """The rows that the pipeline could not process."""

    def __init__(self, connection: Connection, body_files: BodyFileTable) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._body_files = body_files

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows, as tuples with the fields of `Quarantined` except its number."""
        columns = ", ".join(Quarantined._fields[1:])
        marks = ", ".join("?" * (len(Quarantined._fields) - 1))
        self._connection.executemany(f"INSERT INTO quarantine ({columns}) VALUES ({marks})", rows)

    def page(self, entity: int | None, limit: int, after: int) -> list[Quarantined]:
        """Return quarantined rows, oldest first."""
        condition, values = "number > ?", [after]
        if entity is not None:
            condition, values = "entity = ? AND number > ?", [entity, after]
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM quarantine WHERE {condition} ORDER BY number LIMIT ?", (*values, limit)
        )
        return [Quarantined._make(row) for row in rows]

    def at(self, number: int) -> Quarantined | None:
        """Return the quarantined row whose number is `number`; None if there is none."""
        row = self._execute(f"SELECT {_COLUMNS} FROM quarantine WHERE number = ?", (number,)).fetchone()
        return None if row is None else Quarantined._make(row)

    def search(self, message_id: str, most_read: int) -> list[int]:
        """Return the entities that the newest quarantined rows with this id were sent to, newest first."""
        rows = self._execute(
            "SELECT entity FROM (SELECT entity, message_id FROM quarantine ORDER BY number DESC LIMIT ?) q "
            "WHERE message_id = ?",
            (most_read, message_id),
        )
        return [entity for (entity,) in rows]

    def remove(self, row: Quarantined, *, keep_body_file: bool = False) -> None:
        """Delete a quarantined row. With `keep_body_file`, the caller takes over the reference."""
        self._execute("DELETE FROM quarantine WHERE number = ?", (row.number,))
        if not keep_body_file:
            self._body_files.release_all([row.body_file])

    def delete_all(self, entity: int) -> None:
        """Delete all quarantined rows of an entity."""
        rows = self._execute("DELETE FROM quarantine WHERE entity = ? RETURNING body_file", (entity,)).fetchall()
        self._body_files.release_all(name for (name,) in rows)
