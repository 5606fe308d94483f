"""Recent rates of the entities, in memory, for the table of entities: a ring of counts for each of the busiest.

The broker reports each outbox entry that it ingests, so an idle broker costs nothing. The plots use the broker's own
history, which survives a restart. It would have to be read for each row of the table.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable

from oncebus.engine.store import IngestReport
from oncebus.model.messages import NOBODY
from oncebus.values.durations import SECOND

SLOT_SECONDS = 2
SLOTS = 300
"""The number of slots in ten minutes."""
RATE_SLOTS = 5
"""The number of newest slots, ten seconds, from which a rate is computed."""
SPARK_SLOTS = 10
"""The number of slots, a third of a minute, for one point of a small line."""
MOST_ENTITIES = 2000
"""With more entities, the one that was idle longest is forgotten. A ring takes 2.4 KB."""
_INCOMING = ("new", "duplicates", "copies")

_NOTHING = [0] * SLOTS


class _Ring:
    """The incoming messages of one entity in the newest time slots."""

    def __init__(self, slot: int) -> None:
        self._newest = slot
        self._counts = array("Q", _NOTHING)

    def add(self, slot: int, count: int) -> None:
        self._move_to(slot)
        self._counts[slot % SLOTS] += count

    def newest(self, slot: int, slots: int) -> int:
        """Return what was counted in the newest slots before the current one."""
        self._move_to(slot)
        return sum(self._counts[(slot - back) % SLOTS] for back in range(1, slots + 1))

    def before(self, slot: int) -> list[int]:
        """Return the counts of all slots before the current one, oldest first."""
        self._move_to(slot)
        # The oldest slot follows the current one in the ring.
        oldest = (slot + 1) % SLOTS
        return [*self._counts[oldest:], *self._counts[:oldest]][:-1]

    def _move_to(self, slot: int) -> None:
        for passed in range(max(self._newest + 1, slot - SLOTS + 1), slot + 1):
            self._counts[passed % SLOTS] = 0
        self._newest = max(self._newest, slot)


class Rates:
    """The rates of entities. `passed` is a monotonic clock that returns microseconds."""

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._began = self._slot()
        self._rings: OrderedDict[int, _Ring] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rings)

    def record(self, report: IngestReport) -> None:
        """Add the counts of an outbox entry that the store has ingested."""
        slot = self._slot()
        for entity, counted in report.counted.items():
            if entity == NOBODY:
                continue
            if entity not in self._rings:
                self._rings[entity] = _Ring(slot)
            self._rings[entity].add(slot, sum(counted.get(name, 0) for name in _INCOMING))
            self._rings.move_to_end(entity)
        while len(self._rings) > MOST_ENTITIES:
            self._rings.popitem(last=False)

    def per_second(self, entity: int) -> float:
        """Return how many messages come to an entity per second now, duplicates included."""
        ring = self._rings.get(entity)
        return 0.0 if ring is None else ring.newest(self._slot(), RATE_SLOTS) / (RATE_SLOTS * SLOT_SECONDS)

    def spark(self, entity: int) -> list[int]:
        """Return how many messages came to an entity in each third of a minute, oldest first.

        The list begins when the gateway started, or ten minutes ago.
        """
        slot = self._slot()
        points = min(slot - self._began, SLOTS - 1) // SPARK_SLOTS
        ring = self._rings.get(entity)
        if ring is None or not points:
            return [0] * points
        counts = ring.before(slot)[-points * SPARK_SLOTS :]
        return [sum(counts[at : at + SPARK_SLOTS]) for at in range(0, len(counts), SPARK_SLOTS)]

    def _slot(self) -> int:
        return self._passed() // (SLOT_SECONDS * SECOND)
