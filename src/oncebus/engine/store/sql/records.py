"""Records besides messages: the position, the highest numbers, duplicates, forgets, quarantined rows and origins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oncebus.engine.store.sql.body_files import BodyFileReferences
from oncebus.engine.store.sql.connection import Connection, portions
from oncebus.engine.store.values import Duplicate, Forget, Highest, Quarantined
from oncebus.model.messages import TRANSACTION

_COLUMNS = ", ".join(Duplicate._fields)
_FORGET = ", ".join(Forget._fields)
_QUARANTINED = ", ".join(Quarantined._fields)


class Records:
    """The position, the highest numbers, duplicates, forgets, quarantined rows and origins."""

    def __init__(self, connection: Connection, body_files: BodyFileReferences) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._body_files = body_files

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

    # Duplicates

    def add_duplicates(self, duplicates: Iterable[tuple[Any, ...]]) -> None:
        """Add duplicates, as tuples with the fields of `Duplicate`."""
        self._connection.execute_values(
            f"INSERT INTO dropped ({_COLUMNS}) VALUES", "(?, ?, ?, ?, ?, ?, ?, ?, ?)", duplicates
        )

    def duplicates(
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

    def originals(self, entity: int, message_ids: Sequence[str], after: int, through: int) -> list[tuple[int, int]]:
        """Return the sequence numbers of duplicates with these ids, each with that of its original.

        Reads only duplicates with numbers above `after` and up to `through`.
        """
        found: list[tuple[int, int]] = []
        for some in portions(message_ids):
            # The index `dropped_id` finds the ids and, within each, the numbers.
            found += self._execute(
                "SELECT sequence, original_sequence FROM dropped WHERE entity = ? "
                f"AND message_id IN ({', '.join('?' * len(some))}) AND number > ? AND number <= ? "
                "AND original_sequence IS NOT NULL",
                (entity, *some, after, through),
            )
        return found

    def oldest_duplicates(self, entity: int, limit: int) -> list[tuple[int, int]]:
        """Return (number, time) of the oldest duplicates of an entity."""
        return self._execute(
            "SELECT number, time FROM dropped WHERE entity = ? ORDER BY number LIMIT ?", (entity, limit)
        ).fetchall()

    def forget_duplicates(self, entity: int, through: int) -> None:
        """Forget an entity's duplicates up to a number."""
        self._execute("DELETE FROM dropped WHERE entity = ? AND number <= ?", (entity, through))

    def next_with_duplicates(self, after: int) -> int | None:
        """Return the entity with the next higher id that has duplicates; None if there is none."""
        row = self._execute("SELECT min(entity) FROM dropped WHERE entity > ?", (after,)).fetchone()
        return None if row[0] is None else int(row[0])

    # Forgets

    def add_forgets(self, forgets: Iterable[tuple[Any, ...]]) -> None:
        """Add forgets, as tuples with the fields of `Forget` except its number."""
        columns = ", ".join(Forget._fields[1:])
        marks = ", ".join("?" * (len(Forget._fields) - 1))
        self._connection.executemany(f"INSERT INTO forgotten ({columns}) VALUES ({marks})", forgets)

    def keep_forgets(self, entity: int, count: int) -> None:
        """Delete all forgets of an entity but the newest ones."""
        self._execute(
            "DELETE FROM forgotten WHERE entity = ? AND number <= "
            "(SELECT number FROM forgotten WHERE entity = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (entity, entity, count),
        )

    def forgets(self, entity: int, limit: int, after: int) -> list[Forget]:
        """Return an entity's forgets, oldest first."""
        rows = self._execute(
            f"SELECT {_FORGET} FROM forgotten WHERE entity = ? AND number > ? ORDER BY number LIMIT ?",
            (entity, after, limit),
        )
        return [Forget._make(row) for row in rows]

    def forget_at(self, entity: int, sequence: int) -> Forget | None:
        """Return the forget of an entity with this sequence number; None if there is none."""
        row = self._execute(
            f"SELECT {_FORGET} FROM forgotten WHERE entity = ? AND sequence = ?", (entity, sequence)
        ).fetchone()
        return None if row is None else Forget._make(row)

    def newest_forgets(self, entity: int, limit: int) -> list[Forget]:
        """Return an entity's newest forgets, newest first."""
        rows = self._execute(
            f"SELECT {_FORGET} FROM forgotten WHERE entity = ? ORDER BY number DESC LIMIT ?", (entity, limit)
        )
        return [Forget._make(row) for row in rows]

    # Quarantine

    def add_quarantined(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows, as tuples with the fields of `Quarantined` except its number."""
        columns = ", ".join(Quarantined._fields[1:])
        marks = ", ".join("?" * (len(Quarantined._fields) - 1))
        self._connection.executemany(f"INSERT INTO quarantine ({columns}) VALUES ({marks})", rows)

    def quarantined(self, entity: int | None, limit: int, after: int) -> list[Quarantined]:
        """Return quarantined rows, oldest first."""
        condition, values = "number > ?", [after]
        if entity is not None:
            condition, values = "entity = ? AND number > ?", [entity, after]
        rows = self._execute(
            f"SELECT {_QUARANTINED} FROM quarantine WHERE {condition} ORDER BY number LIMIT ?", (*values, limit)
        )
        return [Quarantined._make(row) for row in rows]

    def quarantined_at(self, number: int) -> Quarantined | None:
        """Return the quarantined row whose number is `number`; None if there is none."""
        row = self._execute(f"SELECT {_QUARANTINED} FROM quarantine WHERE number = ?", (number,)).fetchone()
        return None if row is None else Quarantined._make(row)

    def forget_quarantined(self, row: Quarantined, *, keep_body_file: bool = False) -> None:
        """Delete a quarantined row. With `keep_body_file`, the caller takes over the reference."""
        self._execute("DELETE FROM quarantine WHERE number = ?", (row.number,))
        if not keep_body_file:
            self._release([(row.body_file,)])

    # Origins

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

    def end_origin(self, entity: int, sequence: int, commit: int, body_file: str | None) -> None:
        """Record that no row with this origin comes after `commit`.

        Until then the origin holds a reference to the body file.
        """
        self._execute(
            "INSERT INTO origin (entity, sequence, taken, settled, body_file) VALUES (?, ?, 0, ?, ?) "
            "ON CONFLICT (entity, sequence) DO UPDATE SET settled = excluded.settled, "
            "body_file = coalesce(excluded.body_file, origin.body_file)",
            (entity, sequence, commit, body_file),
        )

    def end_origins_of(self, entity: int, commit: int) -> None:
        """Record that no row with an origin in this entity comes after `commit`."""
        self._execute("UPDATE origin SET settled = ? WHERE entity = ? AND settled IS NULL", (commit, entity))

    def end_taken_origins(self, commit: int) -> None:
        """Record that no row comes after `commit` with an origin that was ingested and whose message has left."""
        self._execute(
            "UPDATE origin SET settled = ? WHERE settled IS NULL AND taken = 1 AND NOT EXISTS (SELECT 1 FROM message m "
            "WHERE m.entity = origin.entity AND m.sub_queue IN (0, 1, 2) AND m.sequence = origin.sequence "
            "AND m.stage IN (4, 6)) "
            "AND NOT EXISTS (SELECT 1 FROM pending p WHERE origin.entity = ? AND p.number = origin.sequence)",
            (commit, TRANSACTION),
        )

    def forget_origins(self, position: int) -> None:
        """Forget the origins that no row after `position` can have."""
        self._release(
            self._execute("DELETE FROM origin WHERE settled <= ? RETURNING body_file", (position,)).fetchall()
        )

    def origins(self) -> int:
        """Return how many origins are remembered."""
        return int(self._execute("SELECT count(*) FROM origin").fetchone()[0])

    # Entities

    def delete_entity(self, entity: int) -> None:
        """Delete an entity's numbers, duplicates, forgets and quarantined rows.

        Keep its time; its origins end on their own.
        """
        newest = self._execute("SELECT max(time) FROM highest WHERE entity = ?", (entity,)).fetchone()[0]
        if newest is not None:
            self.raise_time(newest)
        self._execute("DELETE FROM highest WHERE entity = ?", (entity,))
        self._execute("DELETE FROM dropped WHERE entity = ?", (entity,))
        self._execute("DELETE FROM forgotten WHERE entity = ?", (entity,))
        self._release(
            self._execute("DELETE FROM quarantine WHERE entity = ? RETURNING body_file", (entity,)).fetchall()
        )

    def _release(self, names: Iterable[tuple[str | None]]) -> None:
        for (name,) in names:
            if name is not None:
                self._body_files.release(name)
