"""The counts of each entity, and those of the namespace.

The table gets only changes, never a value that somebody read before. They are in memory until their transaction ends,
and are then written, one row per entity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import add

from oncebus.engine.store.records import Counts
from oncebus.engine.store.sql.connection import Connection, lists
from oncebus.engine.store.values import NAMESPACE, Stage, SubQueue

COPIES = "copies"
_COLUMNS = (*(field.name for field in fields(Counts)), COPIES)
_INDEX = {name: index for index, name in enumerate(_COLUMNS)}
_SIZE, _NEW = _INDEX["size"], _INDEX["new"]
_NOW = ("active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter", "deferred", "size")
"""The counts that tell what an entity holds. The others are totals."""

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

_READ = f"SELECT {', '.join(_COLUMNS)} FROM counter WHERE entity = ?"
_SUMS = {name: f"CAST(coalesce(sum({name}), 0) AS BIGINT)" for name in _COLUMNS}
_READ_ALL = f"SELECT {', '.join(_SUMS.values())} FROM counter"
_INSERT = f"INSERT INTO counter (entity, {', '.join(_COLUMNS)})"
_ROW = f"(?{', ?' * len(_COLUMNS)})"
_ADD = "ON CONFLICT (entity) DO UPDATE SET " + ", ".join(
    f"{name} = counter.{name} + excluded.{name}" for name in _COLUMNS
)
_TOTALS = ", ".join("0" if name in _NOW else _SUMS[name] for name in _COLUMNS)


class Counters:
    """The counters of all entities. They are exact at any time, even inside a transaction.

    Reading them again costs no statement, unless others write the table too. The counts of the namespace, under
    `NAMESPACE`, are the sum of all rows, in memory. The row with the id `NAMESPACE` has the totals of deleted entities.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # What the table has, of entities that were read.
        self._known: dict[int, list[int]] = {}
        # What this transaction has changed and the table does not have yet.
        self._changes: dict[int, list[int]] = {}
        # For samples: the values at the last sample, and the entities that may have others by now.
        self._sampled: dict[int, tuple[int, ...]] = {}
        self._unsampled: set[int] = set()
        # Values of samples that this transaction takes.
        self._sampling: dict[int, tuple[int, ...]] = {}
        connection.before_commit.append(self._write)
        connection.after_commit.append(self._end)
        connection.after_rollback.append(self._forget)

    def of(self, entity: int) -> Counts:
        """Return all counts of an entity or of `NAMESPACE`; zeros for an unknown entity."""
        return _counts(entity, self._values(entity))

    def size(self, entity: int) -> int:
        """Return how many bytes an entity holds."""
        change = self._changes.get(entity)
        return self._table_values(entity)[_SIZE] + (change[_SIZE] if change else 0)

    def count(self, entity: int, name: str, number: int) -> None:
        """Add `number` to the count called `name`.

        `COPIES` are the new messages of a subscription: in the namespace, each message is new once.
        """
        index = _INDEX[name]
        self._change(entity)[index] += number
        self._change(NAMESPACE)[index] += number

    def hold(self, entity: int, sub_queue: int, stage: int, number: int, size: int) -> None:
        """Count messages that entered a (sub-queue, stage) of an entity or, with negative numbers, left it."""
        index = _HELD[sub_queue, stage]
        for change in (self._change(entity), self._change(NAMESPACE)):
            change[index] += number
            change[_SIZE] += size

    def move(self, entity: int, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Count a message that moved from one (sub-queue, stage) to another."""
        if (left := _HELD[before]) != (entered := _HELD[after]):
            for change in (self._change(entity), self._change(NAMESPACE)):
                change[left] -= 1
                change[entered] += 1

    def list_unsampled(self) -> list[tuple[int, Counts, Counts]]:
        """Return each entity that changed since the last call, with its counts then and now.

        If the transaction fails, they are returned again.
        """
        self._unsampled |= self._changes.keys()
        if self._unsampled:
            self._unsampled.add(NAMESPACE)
        found = []
        for entity in self._unsampled:
            values = tuple(self._values(entity))
            before = self._sampling.get(entity) or self._sampled[entity]
            if values != before:
                found.append((entity, _counts(entity, before), _counts(entity, values)))
            self._sampling[entity] = values
        return found

    def delete(self, entities: Sequence[int]) -> None:
        """Forget all counts of these entities. Their totals remain in those of the namespace."""
        # A sample compares with the values from before.
        self._table_values(NAMESPACE)
        self._write()
        for marks, some in lists(entities):
            self._connection.execute(
                f"{_INSERT} SELECT {NAMESPACE}, {_TOTALS} FROM counter WHERE entity IN ({marks}) {_ADD}", some
            )
            self._connection.execute(f"DELETE FROM counter WHERE entity IN ({marks})", some)
        for entity in (*entities, NAMESPACE):
            self._known.pop(entity, None)
        for entity in entities:
            self._unsampled.discard(entity)
            self._sampling.pop(entity, None)
            self._sampled.pop(entity, None)
        self._unsampled.add(NAMESPACE)

    def _change(self, entity: int) -> list[int]:
        change = self._changes.get(entity)
        if change is None:
            # A sample compares with the values from before.
            self._table_values(entity)
            change = self._changes[entity] = [0] * len(_COLUMNS)
        return change

    def _values(self, entity: int) -> list[int]:
        values, change = self._table_values(entity), self._changes.get(entity)
        return values if change is None else list(map(add, values, change))

    def _table_values(self, entity: int) -> list[int]:
        values = self._known.get(entity)
        if values is None:
            read = (_READ_ALL, ()) if entity == NAMESPACE else (_READ, (entity,))
            row = self._connection.execute(*read).fetchone()
            values = list(row) if row else [0] * len(_COLUMNS)
            if self._may_keep():
                self._known[entity] = values
            self._sampled.setdefault(entity, tuple(values))
        return values

    def _may_keep(self) -> bool:
        """Return whether nobody else can change what this transaction has read."""
        return self._connection.is_inside or not self._connection.is_shared

    def _write(self) -> None:
        if not self._changes:
            return
        for entity in self._changes:
            self._known[entity] = self._values(entity)
        del self._changes[NAMESPACE]
        rows = [(entity, *change) for entity, change in self._changes.items()]
        self._connection.execute_values(f"{_INSERT} VALUES", _ROW, rows, _ADD)
        self._unsampled |= self._changes.keys()
        self._changes.clear()

    def _end(self) -> None:
        """Keep what the table has now, and what was sampled."""
        if self._sampling:
            self._sampled |= self._sampling
            self._unsampled = {each for each in self._unsampled if self._sampled[each] != tuple(self._values(each))}
            self._sampling.clear()
        if self._connection.is_shared:
            self._known.clear()

    def _forget(self) -> None:
        self._known.clear()
        self._changes.clear()
        self._sampling.clear()


def _counts(entity: int, values: Sequence[int]) -> Counts:
    *counts, copies = values
    if entity != NAMESPACE:
        counts[_NEW] += copies
    return Counts(*counts)
