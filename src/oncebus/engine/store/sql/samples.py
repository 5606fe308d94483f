"""Samples of the counters over time, and the times at which the broker ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncebus.engine.store.sql.connection import Connection, lists


class SampleRow(NamedTuple):
    """What changed in one slot of time. `before` and `active` are the active messages at its start and at its end."""

    step: int
    entity: int
    slot: int
    new: int
    duplicates: int
    outgoing: int
    completed: int
    dead_lettered: int
    before: int
    active: int


_COLUMNS = ", ".join(SampleRow._fields)
_ADDED = ("new", "duplicates", "outgoing", "completed", "dead_lettered")
_ADD = (
    f"INSERT INTO sample ({_COLUMNS}) VALUES",
    f"({', '.join('?' * len(SampleRow._fields))})",
    "ON CONFLICT (step, entity, slot) DO UPDATE SET active = excluded.active, "
    + ", ".join(f"{name} = sample.{name} + excluded.{name}" for name in _ADDED),
)


class SampleTable:
    """The rows of all samples, and the runs of the broker. A slot in which nothing changed has no row."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def add(self, rows: Iterable[SampleRow]) -> None:
        """Add samples. One for a slot that has a row is added to it."""
        start, marks, end = _ADD
        self._connection.execute_values(start, marks, rows, end)

    def read(self, step: int, entity: int, first: int) -> list[SampleRow]:
        """Return the samples of an entity from a slot on, oldest first."""
        rows = self._execute(
            f"SELECT {_COLUMNS} FROM sample WHERE step = ? AND entity = ? AND slot >= ? ORDER BY slot",
            (step, entity, first),
        )
        return [SampleRow._make(row) for row in rows]

    def last_slots(self, step: int) -> dict[int, int]:
        """Return the entities that have samples, each with its newest slot."""
        rows = self._execute("SELECT entity, max(slot) FROM sample WHERE step = ? GROUP BY entity", (step,))
        return dict(rows)

    def prune(self, step: int, entities: Sequence[int], first: int) -> None:
        """Delete the samples of entities before a slot."""
        for marks, some in lists(entities):
            self._execute(
                f"DELETE FROM sample WHERE step = ? AND entity IN ({marks}) AND slot < ?", (step, *some, first)
            )

    def delete(self, steps: Iterable[int], entities: Sequence[int]) -> None:
        """Delete all samples of entities."""
        for step in steps:
            self.prune(step, entities, 2**62)

    # When the broker ran

    def runs(self, since: int) -> list[tuple[int, int]]:
        """Return the (begin, end) of the runs that ended after a time, oldest first."""
        return self._execute("SELECT began, ended FROM running WHERE ended >= ? ORDER BY began", (since,)).fetchall()

    def note_run(self, began: int, ended: int) -> None:
        """Record that the broker, which began to run at a time, has run until another."""
        self._execute(
            "INSERT INTO running (began, ended) VALUES (?, ?) ON CONFLICT (began) DO UPDATE SET ended = excluded.ended",
            (began, ended),
        )

    def forget_runs(self, before: int, most: int) -> None:
        """Forget runs that ended before a time, and all but the newest ones."""
        self._execute("DELETE FROM running WHERE ended < ?", (before,))
        self._execute(
            "DELETE FROM running WHERE began < (SELECT began FROM running ORDER BY began DESC LIMIT 1 OFFSET ?)",
            (most,),
        )
