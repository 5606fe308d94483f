"""How many references each body file has. One that has none is unused: its file may be deleted."""

from __future__ import annotations

from collections.abc import Iterable

from oncebus.store.sql.connection import Connection


class BodyFileReferences:
    """References by name. A name stays with the count 0 until its file is gone and it is forgotten."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refer(self, references: Iterable[tuple[str, int]]) -> None:
        """Add references, also none at all: a name that only dropped rows bore is unused from the start."""
        self._connection.executemany(
            "INSERT INTO blob (name, copies) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET copies = blob.copies + excluded.copies",
            references,
        )

    def release(self, name: str) -> None:
        """Take one reference away."""
        self._connection.execute("UPDATE blob SET copies = copies - 1 WHERE name = ?", (name,))

    def needed(self) -> list[str]:
        """Names with a reference."""
        return [name for (name,) in self._connection.execute("SELECT name FROM blob WHERE copies > 0")]

    def unused(self, limit: int) -> list[str]:
        """Names without a reference."""
        rows = self._connection.execute("SELECT name FROM blob WHERE copies = 0 ORDER BY name LIMIT ?", (limit,))
        return [name for (name,) in rows]

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of the names that no row ever bore, or that were forgotten."""
        known = "SELECT 1 FROM blob WHERE name = ?"
        return [name for name in names if self._connection.execute(known, (name,)).fetchone() is None]

    def forget(self, names: Iterable[str]) -> None:
        """The files are gone. A name that has been referred to meanwhile stays."""
        self._connection.executemany("DELETE FROM blob WHERE name = ? AND copies = 0", [(name,) for name in names])
