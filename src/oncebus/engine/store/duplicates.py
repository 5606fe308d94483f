"""The record of dropped duplicates: the most recent ones of each entity, up to a number and an age."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from oncebus.engine.store.records import Duplicate
from oncebus.engine.store.sql.tables import Tables
from oncebus.model.messages import Result

_STEP = 1000
_PORTION = 50
"""How many duplicates of one entity to read at a time when several entities are merged."""


class Duplicates:
    """The record of dropped duplicates. Reads a bounded number of rows."""

    def __init__(self, tables: Tables, age: int) -> None:
        self._tables = tables
        self._age = age

    def page(
        self,
        entity: int,
        message_id: str | None = None,
        since: int | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Duplicate]:
        """Return dropped duplicates of an entity, oldest first. `after` is the last `number` on the previous page."""
        return self._tables.duplicates.page(entity, message_id, since, limit, after)

    def originals(self, entity: int, message_ids: Sequence[str], after: int, through: int) -> dict[int, int]:
        """Return the sequence numbers of dropped duplicates with these ids, each with that of its original.

        Reads only duplicates whose `number` is above `after` and up to `through`.
        """
        return dict(self._tables.duplicates.originals(entity, message_ids, after, through))

    def newest(self, entity: int, since: int = 0, limit: int = 100, before: int | None = None) -> list[Duplicate]:
        """Return the duplicates of an entity from `since` on, newest first. `before` is the last number seen."""
        found = self._tables.duplicates.newest(entity, before, limit)
        return [each for each in found if each.time >= since]

    def newest_of(self, entities: Sequence[int], since: int = 0, limit: int = 100) -> list[Duplicate]:
        """Return the newest duplicates of several entities from `since` on, newest first."""
        streams = [self._stream(entity, since) for entity in entities]
        return list(islice(heapq.merge(*streams, key=lambda each: -each.time), limit))

    def newest_with_id(self, entities: Sequence[int], message_id: str, limit: int = 100) -> list[Duplicate]:
        """Return the newest duplicates of several entities with this id, newest first."""
        streams = [self._tables.duplicates.newest_with_id(each, message_id, limit) for each in entities]
        return list(islice(heapq.merge(*streams, key=lambda each: -each.time), limit))

    def _stream(self, entity: int, since: int) -> Iterator[Duplicate]:
        """Yield the duplicates of an entity, newest first. Reads one, because most entities contribute no other."""
        before, size = None, 1
        while some := self._tables.duplicates.newest(entity, before, size):
            for each in some:
                if each.time < since:
                    return
                yield each
            before, size = some[-1].number, _PORTION

    def count_since(self, entity: int, since: int) -> int:
        """Return how many duplicates of an entity are on record from a time on, by halving: numbers have no gaps."""
        table = self._tables.duplicates
        newest = table.newest(entity, None, 1)
        first = table.first_from(entity, 0)
        if first is None or newest[0].time < since:
            return 0
        last = newest[0].number
        low, high = first[0], last
        while low < high:
            middle = (low + high) // 2
            there = table.first_from(entity, middle)
            if there is not None and there[1] < since:
                low = middle + 1
            else:
                high = middle
        return last - low + 1

    def prune(self, now: int) -> int:
        """Forget duplicates that are too old, including those of entities that get no new ones.

        Return how many were forgotten.
        """
        tables = self._tables.for_change()
        forgotten, entity = 0, tables.duplicates.next_entity(-1)
        while entity is not None:
            forgotten += _forget_old(tables, entity, now - self._age)
            entity = tables.duplicates.next_entity(entity)
        return forgotten


def add_duplicates(tables: Tables, dropped: Sequence[Result], now: int, kept: int, age: int) -> None:
    """Record duplicates, which are already counted, and forget records that are too old or too many."""
    newest = {entity: tables.counters.of(entity).duplicates for entity in {row.entity for row, *_ in dropped}}
    number = {entity: newest[entity] - count for entity, count in Counter(row.entity for row, *_ in dropped).items()}
    records = []
    for row, _, _, reason, description, original_sequence, original_time in dropped:
        number[row.entity] += 1
        values = (row.message_id, row.time, row.sequence, original_sequence, original_time, reason, description)
        records.append((row.entity, number[row.entity], *values))
    tables.duplicates.add(records)
    for entity, last in newest.items():
        tables.duplicates.forget_through(entity, last - kept)
        _forget_old(tables, entity, now - age)


def _forget_old(tables: Tables, entity: int, before: int) -> int:
    """Forget an entity's duplicates from before a time. Return how many were forgotten."""
    forgotten = 0
    while oldest := tables.duplicates.oldest(entity, 1 if not forgotten else _STEP):
        old = [number for number, time in oldest if time < before]
        if not old:
            break
        tables.duplicates.forget_through(entity, old[-1])
        forgotten += len(old)
    return forgotten
