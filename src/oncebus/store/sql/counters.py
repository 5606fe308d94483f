"""The counts of each entity.

They are in memory during a transaction, and are written when it ends, one row per entity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from oncebus.store.sql.connection import Connection
from oncebus.store.values import Counts, Stage, SubQueue

NAMES = tuple(field.name for field in fields(Counts))
_INDEX = {name: index for index, name in enumerate(NAMES)}
_SIZE = _INDEX["size"]

_MAIN = {
    Stage.READY: "active",
    Stage.LOCKED: "active",
    Stage.DEFERRED: "deferred",
    Stage.DEFERRED_LOCKED: "deferred",
    Stage.SCHEDULED: "scheduled",
    Stage.RETURN: "scheduled",
}
_SUB_QUEUES = {SubQueue.DEAD_LETTER: "dead_letter", SubQueue.TRANSFER_DEAD_LETTER: "transfer_dead_letter"}
_HELD: dict[tuple[int, int], int] = {
    (int(sub_queue), int(stage)): _INDEX[
        "transfer" if stage is Stage.FORWARD else _SUB_QUEUES.get(sub_queue, _MAIN.get(stage, "active"))
    ]
    for sub_queue in SubQueue
    for stage in Stage
}

_READ = f"SELECT {', '.join(NAMES)} FROM counter WHERE entity = ?"
_WRITE = (
    f"INSERT INTO counter (entity, {', '.join(NAMES)}) VALUES (?{', ?' * len(NAMES)}) "
    f"ON CONFLICT (entity) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in NAMES)}"
)


class Counters:
    """The counters of all entities. They are exact at any time, even inside a transaction.

    Reading them again is free.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[int, list[int]] = {}
        self._changed: set[int] = set()
        connection.before_commit.append(self._write)
        connection.after_rollback.append(self._forget)

    def of(self, entity: int) -> Counts:
        """Return all counts of an entity; zeros for an unknown one."""
        return Counts(*self._values(entity))

    def size(self, entity: int) -> int:
        """Return how many bytes an entity holds."""
        return self._values(entity)[_SIZE]

    def count(self, entity: int, name: str, number: int) -> None:
        """Add `number` to the count called `name`."""
        self._changed.add(entity)
        self._values(entity)[_INDEX[name]] += number

    def hold(self, entity: int, sub_queue: int, stage: int, number: int, size: int) -> None:
        """Count messages that entered a (sub-queue, stage) of an entity or, with negative numbers, left it."""
        self._changed.add(entity)
        values = self._values(entity)
        values[_HELD[sub_queue, stage]] += number
        values[_SIZE] += size

    def move(self, entity: int, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Count a message that moved from one (sub-queue, stage) to another."""
        if (left := _HELD[before]) != (entered := _HELD[after]):
            self._changed.add(entity)
            values = self._values(entity)
            values[left] -= 1
            values[entered] += 1

    def delete(self, entities: Sequence[int]) -> None:
        """Forget all counts of these entities."""
        for entity in entities:
            self._known.pop(entity, None)
            self._changed.discard(entity)
        self._connection.executemany("DELETE FROM counter WHERE entity = ?", [(entity,) for entity in entities])

    def _values(self, entity: int) -> list[int]:
        values = self._known.get(entity)
        if values is None:
            row = self._connection.execute(_READ, (entity,)).fetchone()
            values = self._known[entity] = list(row) if row else [0] * len(NAMES)
        return values

    def _write(self) -> None:
        self._connection.executemany(_WRITE, [(entity, *self._known[entity]) for entity in self._changed])
        self._changed.clear()

    def _forget(self) -> None:
        self._known.clear()
        self._changed.clear()
