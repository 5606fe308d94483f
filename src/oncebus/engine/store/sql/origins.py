"""The origins of requeued messages and of messages that transactions sent.

An origin is remembered from its first row until no other row with it can come.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebus.engine.store.sql.body_files import BodyFileTable
from oncebus.engine.store.sql.connection import Connection
from oncebus.model.messages import TRANSACTION


class OriginTable:
    """The rows of origins."""

    def __init__(self, connection: Connection, body_files: BodyFileTable) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._body_files = body_files

    def is_taken(self, entity: int, sequence: int) -> bool:
        """Return whether a row with this origin was ingested."""
        row = self._execute("SELECT taken FROM origin WHERE entity = ? AND sequence = ?", (entity, sequence)).fetchone()
        return row is not None and bool(row[0])

    def take(self, origins: Iterable[tuple[int, int]]) -> None:
        """Record that rows with these origins are ingested now."""
        self._connection.executemany(
            "INSERT INTO origin (entity, sequence, taken) VALUES (?, ?, 1) "
            "ON CONFLICT (entity, sequence) DO UPDATE SET taken = 1",
            origins,
        )

    def end(self, entity: int, sequence: int, commit: int, body_file: str | None) -> None:
        """Record that no row with this origin comes after `commit`.

        Until then the origin holds a reference to the body file.
        """
        self._execute(
            "INSERT INTO origin (entity, sequence, taken, settled, body_file) VALUES (?, ?, 0, ?, ?) "
            "ON CONFLICT (entity, sequence) DO UPDATE SET settled = excluded.settled, "
            "body_file = coalesce(excluded.body_file, origin.body_file)",
            (entity, sequence, commit, body_file),
        )

    def end_all(self, entity: int, commit: int) -> None:
        """Record that no row with an origin in this entity comes after `commit`."""
        self._execute("UPDATE origin SET settled = ? WHERE entity = ? AND settled IS NULL", (commit, entity))

    def end_taken(self, commit: int) -> None:
        """Record that no row comes after `commit` with an origin that was ingested and whose message has left."""
        self._execute(
            "UPDATE origin SET settled = ? WHERE settled IS NULL AND taken = 1 AND NOT EXISTS (SELECT 1 FROM message m "
            "WHERE m.entity = origin.entity AND m.sub_queue IN (0, 1, 2) AND m.sequence = origin.sequence "
            "AND m.stage IN (4, 6)) "
            "AND NOT EXISTS (SELECT 1 FROM pending p WHERE origin.entity = ? AND p.number = origin.sequence)",
            (commit, TRANSACTION),
        )

    def forget_through(self, position: int) -> None:
        """Forget the origins that no row after `position` can have."""
        rows = self._execute("DELETE FROM origin WHERE settled <= ? RETURNING body_file", (position,)).fetchall()
        self._body_files.release_all(name for (name,) in rows)

    def count(self) -> int:
        """Return how many origins are remembered."""
        return int(self._execute("SELECT count(*) FROM origin").fetchone()[0])
