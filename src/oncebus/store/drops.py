"""The record of dropped duplicates: the most recent ones of each entity, up to a number and an age."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from oncebus.store.base import StoreBase
from oncebus.store.entry import groups, integers, values
from oncebus.store.sql.tables import Tables
from oncebus.store.values import Drop

_STEP = 1000


class Drops(StoreBase):
    """The record of dropped duplicates."""

    def drops(
        self,
        entity: int,
        message_id: str | None = None,
        since: int | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Drop]:
        """Dropped duplicates of an entity in the order they came; `after` is the last `number` of the page before."""
        return self._tables.records.drops(entity, message_id, since, limit, after)

    def prune_drops(self, now: int) -> int:
        """Forget drops that are too old, of entities at rest too. Answers how many."""
        tables = self._change()
        forgotten, entity = 0, tables.records.next_with_drops(-1)
        while entity is not None:
            forgotten += _forget_old(tables, entity, now - self._drops_age)
            entity = tables.records.next_with_drops(entity)
        return forgotten


def add_drops(tables: Tables, rows: pa.Table, now: int, kept: int, age: int) -> None:
    """Record these duplicates, which the counters hold already, and forget what is too old or too much."""
    entity = integers(rows, "entity")
    order, starts, lengths = groups(entity)
    entities = entity[order[starts]].tolist()
    newest = [tables.counters.of(each).duplicates for each in entities]
    number = np.empty(len(entity), np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, lengths)
    number[order] = np.repeat(np.array(newest) - lengths, lengths) + 1 + rank
    names = ("message_id", "time", "sequence", "original_sequence", "original_time")
    columns = [values(rows, name) for name in names]
    tables.records.add_drops(zip(entity.tolist(), number.tolist(), *columns, strict=True))
    for each, last in zip(entities, newest, strict=True):
        tables.records.forget_drops(each, last - kept)
        _forget_old(tables, each, now - age)


def _forget_old(tables: Tables, entity: int, before: int) -> int:
    """Forget an entity's drops from before a time. Answers how many."""
    forgotten = 0
    while oldest := tables.records.oldest_drops(entity, 1 if not forgotten else _STEP):
        old = [number for number, time in oldest if time < before]
        if not old:
            break
        tables.records.forget_drops(entity, old[-1])
        forgotten += len(old)
    return forgotten
