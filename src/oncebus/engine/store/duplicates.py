"""The record of dropped duplicates: the most recent ones of each entity, up to a number and an age."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from oncebus.engine.store.base import StoreBase
from oncebus.engine.store.entry import groups, integers, values
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.values import Duplicate

_STEP = 1000


class Duplicates(StoreBase):
    """The record of dropped duplicates."""

    def duplicates(
        self,
        entity: int,
        message_id: str | None = None,
        since: int | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Duplicate]:
        """Return dropped duplicates of an entity, oldest first. `after` is the last `number` on the previous page."""
        return self._tables.records.duplicates(entity, message_id, since, limit, after)

    def originals(self, entity: int, message_ids: Sequence[str], after: int, through: int) -> dict[int, int]:
        """Return the sequence numbers of dropped duplicates with these ids, each with that of its original.

        Reads only duplicates whose `number` is above `after` and up to `through`.
        """
        return dict(self._tables.records.originals(entity, message_ids, after, through))

    def prune_duplicates(self, now: int) -> int:
        """Forget duplicates that are too old, including those of entities that get no new ones.

        Return how many were forgotten.
        """
        tables = self._change()
        forgotten, entity = 0, tables.records.next_with_duplicates(-1)
        while entity is not None:
            forgotten += _forget_old(tables, entity, now - self._duplicates_age)
            entity = tables.records.next_with_duplicates(entity)
        return forgotten


def add_duplicates(tables: Tables, rows: pa.Table, now: int, kept: int, age: int) -> None:
    """Record duplicates, which are already counted, and forget records that are too old or too many."""
    entity = integers(rows, "entity")
    order, starts, lengths = groups(entity)
    entities = entity[order[starts]].tolist()
    newest = [tables.counters.of(each).duplicates for each in entities]
    number = np.empty(len(entity), np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, lengths)
    number[order] = np.repeat(np.array(newest) - lengths, lengths) + 1 + rank
    names = ("message_id", "time", "sequence", "original_sequence", "original_time", "reason", "description")
    columns = [values(rows, name) for name in names]
    tables.records.add_duplicates(zip(entity.tolist(), number.tolist(), *columns, strict=True))
    for each, last in zip(entities, newest, strict=True):
        tables.records.forget_duplicates(each, last - kept)
        _forget_old(tables, each, now - age)


def _forget_old(tables: Tables, entity: int, before: int) -> int:
    """Forget an entity's duplicates from before a time. Return how many were forgotten."""
    forgotten = 0
    while oldest := tables.records.oldest_duplicates(entity, 1 if not forgotten else _STEP):
        old = [number for number, time in oldest if time < before]
        if not old:
            break
        tables.records.forget_duplicates(entity, old[-1])
        forgotten += len(old)
    return forgotten
