"""How far the store has come: its position, its marks, and the highest numbers and times."""

from __future__ import annotations

from collections.abc import Iterable

from oncebus.engine.store.records import Highest
from oncebus.engine.store.sql.connection import Connection


class ProgressTable:
    """The position, the marks and the highest numbers. Marks only go up."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def position(self) -> int:
        """Return the last inbox commit that was ingested."""
        return int(self._execute("SELECT value FROM progress WHERE name = 'position'").fetchone()[0])

    def set_position(self, commit: int) -> None:
        """Record that everything up to this commit is ingested."""
        self._execute("UPDATE progress SET value = ? WHERE name = 'position'", (commit,))

    def time(self) -> int:
        """Return the highest time ever seen, including that of deleted entities."""
        rows = self._execute(
            "SELECT coalesce(max(time), 0) FROM highest UNION ALL SELECT value FROM progress WHERE name = 'time'"
        )
        return max(int(time) for (time,) in rows)

    def raise_time(self, time: int) -> None:
        """Record a time that no row of table `highest` has, such as one of a deleted entity."""
        self.raise_mark("time", time)

    def mark(self, name: str) -> int:
        """Return the greatest value ever recorded under a name; 0 if there is none."""
        row = self._execute("SELECT value FROM progress WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    def raise_mark(self, name: str, value: int) -> None:
        """Record a value under a name, unless a higher one is recorded already."""
        self._execute(
            "INSERT INTO progress (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET "
            "value = CASE WHEN progress.value > excluded.value THEN progress.value ELSE excluded.value END",
            (name, value),
        )

    def forget_mark(self, name: str) -> None:
        """Delete the value under a name."""
        self._execute("DELETE FROM progress WHERE name = ?", (name,))

    def highest(self, entity: int, partition: int) -> Highest | None:
        """Return the highest number and time of one partition; None if it has none."""
        row = self._execute(
            "SELECT entity, part, sequence, time FROM highest WHERE entity = ? AND part = ?", (entity, partition)
        ).fetchone()
        return None if row is None else Highest._make(row)

    def all_highest(self) -> list[Highest]:
        """Return the highest number and time of every partition of every entity."""
        return [Highest._make(row) for row in self._execute("SELECT entity, part, sequence, time FROM highest")]

    def raise_highest(self, seen: Iterable[Highest]) -> None:
        """Record numbers and times. Higher ones that are recorded already stay."""
        self._connection.executemany(
            "INSERT INTO highest (entity, part, sequence, time) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (entity, part) DO UPDATE SET "
            "sequence = CASE WHEN highest.sequence > excluded.sequence THEN highest.sequence "
            "ELSE excluded.sequence END, "
            "time = CASE WHEN highest.time > excluded.time THEN highest.time ELSE excluded.time END",
            seen,
        )

    def delete_all(self, entity: int) -> None:
        """Delete an entity's numbers. Keep its time."""
        newest = self._execute("SELECT max(time) FROM highest WHERE entity = ?", (entity,)).fetchone()[0]
        if newest is not None:
            self.raise_time(newest)
        self._execute("DELETE FROM highest WHERE entity = ?", (entity,))
