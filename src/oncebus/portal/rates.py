"""Recent rates: a ring of samples for the namespace, and one for each of the busiest entities.

The broker reports each outbox entry that it ingests, so an idle broker costs nothing.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from oncebus.durations import SECOND
from oncebus.messages import NOBODY
from oncebus.store import IngestReport

SLOT_SECONDS = 2
SLOTS = 300
"""The number of slots in ten minutes."""
RATE_SLOTS = 5
"""The number of newest slots, ten seconds, from which a rate is computed."""
MOST_ENTITIES = 1000
"""With more entities, the one that was idle longest is forgotten. A ring takes 7 KB."""
COUNTED = ("new", "duplicates", "copies")

_NOTHING = [0] * SLOTS


class Samples(NamedTuple):
    """The counts per time slot, oldest first, without the current slot."""

    new: list[int]
    duplicates: list[int]
    copies: list[int]

    def per_second(self) -> tuple[float, float, float]:
        """Return the current rates per second."""
        seconds = RATE_SLOTS * SLOT_SECONDS
        new, duplicates, copies = (sum(each[-RATE_SLOTS:]) / seconds for each in self)
        return new, duplicates, copies


class _Ring:
    """The newest time slots of one entity."""

    def __init__(self, slot: int) -> None:
        self._newest = slot
        self._counts = {name: array("Q", _NOTHING) for name in COUNTED}

    def add(self, slot: int, counted: dict[str, int]) -> None:
        self._move_to(slot)
        for name, counts in self._counts.items():
            counts[slot % SLOTS] += counted.get(name, 0)

    def samples(self, slot: int) -> Samples:
        self._move_to(slot)
        # The oldest slot follows the current one in the ring.
        oldest = (slot + 1) % SLOTS
        return Samples(*(([*each[oldest:], *each[:oldest]][:-1]) for each in self._counts.values()))

    def _move_to(self, slot: int) -> None:
        for passed in range(max(self._newest + 1, slot - SLOTS + 1), slot + 1):
            for counts in self._counts.values():
                counts[passed % SLOTS] = 0
        self._newest = max(self._newest, slot)


class Rates:
    """Samples for the namespace and its entities. `passed` is a monotonic clock that returns microseconds."""

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._all = _Ring(self._slot())
        self._rings: OrderedDict[int, _Ring] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rings)

    def record(self, report: IngestReport) -> None:
        """Add the counts of an outbox entry that the store has ingested."""
        slot = self._slot()
        for entity, counted in report.counted.items():
            if entity == NOBODY:
                continue
            self._all.add(slot, counted)
            if entity not in self._rings:
                self._rings[entity] = _Ring(slot)
            self._rings[entity].add(slot, counted)
            self._rings.move_to_end(entity)
        while len(self._rings) > MOST_ENTITIES:
            self._rings.popitem(last=False)

    def samples(self, entity: int | None = None) -> Samples:
        """Return the samples of an entity, or of the namespace."""
        ring = self._all if entity is None else self._rings.get(entity)
        if ring is None:
            return Samples(*(_NOTHING[1:] for _ in COUNTED))
        return ring.samples(self._slot())

    def _slot(self) -> int:
        return self._passed() // (SLOT_SECONDS * SECOND)
