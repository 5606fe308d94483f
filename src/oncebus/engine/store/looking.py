"""Bounded queries for people: searches for messages, and the newest duplicates."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

from oncebus.engine.store.base import StoreBase
from oncebus.engine.store.values import Duplicate, Found, SubQueue

_PORTION = 50
"""How many duplicates of one entity to read at a time when several entities are merged."""


class Looking(StoreBase):
    """Queries that read a bounded number of rows, and change nothing."""

    def search(
        self,
        entity: int,
        sub_queue: SubQueue,
        start: int,
        most_read: int,
        message_id: str | None = None,
        session: str | None = None,
    ) -> tuple[list[int], int | None]:
        """Return the sequence numbers of matching messages among the next `most_read`, and where to go on, or None."""
        return self._tables.searches.in_entity(entity, sub_queue, start, most_read, message_id, session)

    def search_everywhere(self, message_id: str, before: int, most_read: int) -> tuple[list[Found], int | None]:
        """Search the messages of all entities, newest first. Return the matches, and the `before` to go on, or None."""
        return self._tables.searches.everywhere(message_id, before, most_read)

    def search_quarantine(self, message_id: str, most_read: int) -> list[int]:
        """Return the entities that the newest quarantined rows with this id were sent to, newest first."""
        return self._tables.searches.in_quarantine(message_id, most_read)

    def present(self, entity: int, sequences: Sequence[int]) -> list[Found]:
        """Return the messages of an entity with these sequence numbers that are still there, dead letters included."""
        return self._tables.searches.at(entity, sequences)

    def newest_duplicates(
        self, entity: int, since: int = 0, limit: int = 100, before: int | None = None
    ) -> list[Duplicate]:
        """Return the duplicates of an entity from `since` on, newest first. `before` is the last number seen."""
        found = self._tables.searches.newest_duplicates(entity, before, limit)
        return [each for each in found if each.time >= since]

    def newest_duplicates_of(self, entities: Sequence[int], since: int = 0, limit: int = 100) -> list[Duplicate]:
        """Return the newest duplicates of several entities from `since` on, newest first."""
        streams = [self._stream(entity, since) for entity in entities]
        return list(islice(heapq.merge(*streams, key=lambda each: -each.time), limit))

    def newest_duplicates_with_id(self, entities: Sequence[int], message_id: str, limit: int = 100) -> list[Duplicate]:
        """Return the newest duplicates of several entities with this id, newest first."""
        streams = [self._tables.searches.newest_duplicates_with_id(each, message_id, limit) for each in entities]
        return list(islice(heapq.merge(*streams, key=lambda each: -each.time), limit))

    def _stream(self, entity: int, since: int) -> Iterator[Duplicate]:
        """Yield the duplicates of an entity, newest first. Reads one, because most entities contribute no other."""
        before, size = None, 1
        while some := self._tables.searches.newest_duplicates(entity, before, size):
            for each in some:
                if each.time < since:
                    return
                yield each
            before, size = some[-1].number, _PORTION

    def duplicates_since(self, entity: int, since: int) -> int:
        """Return how many duplicates of an entity are on record from a time on, by halving: numbers have no gaps."""
        searches = self._tables.searches
        newest = searches.newest_duplicates(entity, None, 1)
        first = searches.duplicate_from(entity, 0)
        if first is None or newest[0].time < since:
            return 0
        last = newest[0].number
        low, high = first[0], last
        while low < high:
            middle = (low + high) // 2
            there = searches.duplicate_from(entity, middle)
            if there is not None and there[1] < since:
                low = middle + 1
            else:
                high = middle
        return last - low + 1
