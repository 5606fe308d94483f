"""Reference counts of body files. A file without references is unused and may be deleted."""

from __future__ import annotations

from collections.abc import Iterable

from oncebus.engine.store.sql.connection import Connection


class BodyFileTable:
    """References by name. An unused name stays, with count 0, until its file is deleted and `forget` is called."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refer(self, references: Iterable[tuple[str, int]]) -> None:
        """Add references, as (name, number).

        The number may be 0: a file that only dropped rows name is unused from the start.
        """
        self._connection.executemany(
            "INSERT INTO body_file (name, copies) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET copies = body_file.copies + excluded.copies",
            references,
        )

    def release_all(self, names: Iterable[str | None]) -> None:
        """Remove one reference to each name; None stands for a message without a body file."""
        for name in names:
            if name is not None:
                self._connection.execute("UPDATE body_file SET copies = copies - 1 WHERE name = ?", (name,))

    def list_needed(self) -> list[str]:
        """Return the names that have references."""
        return [name for (name,) in self._connection.execute("SELECT name FROM body_file WHERE copies > 0")]

    def list_unused(self, limit: int = 1000) -> list[str]:
        """Return names without references."""
        rows = self._connection.execute("SELECT name FROM body_file WHERE copies = 0 ORDER BY name LIMIT ?", (limit,))
        return [name for (name,) in rows]

    def list_unknown(self, names: Iterable[str]) -> list[str]:
        """Return those names that no row ever referred to, or that were forgotten."""
        known = "SELECT 1 FROM body_file WHERE name = ?"
        return [name for name in names if self._connection.execute(known, (name,)).fetchone() is None]

    def forget(self, names: Iterable[str]) -> None:
        """Forget names whose files are deleted. A name that got a reference meanwhile stays."""
        self._connection.need_transaction()
        self._connection.executemany("DELETE FROM body_file WHERE name = ? AND copies = 0", [(name,) for name in names])
