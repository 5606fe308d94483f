"""When entities were last used: those that are idle for too long delete themselves, and need no share of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncebus.broker.waiting import Arrivals
from oncebus.durations import SECOND
from oncebus.entities import NO_LIMIT, Catalogue, Entity, Subscription

STILL_IN_USE = 600 * SECOND
"""For how long after its last use an entity counts as one that is in use."""
LOOK_AGAIN = SECOND


class Accesses:
    """The last use of each entity, in memory: a broker that is started begins to count anew.

    `passed` is a clock that nobody sets: an entity is not deleted because the machine's clock was wrong.
    """

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._began = passed()
        self._last: dict[int, int] = {}

    def note(self, entity: int) -> None:
        """It is used now."""
        self._last[entity] = self._passed()

    def last(self, entity: int) -> int | None:
        """When it was last used, by the clock that nobody sets; None where it was not since the broker began."""
        return self._last.get(entity)

    def forget(self, entities: Iterable[int]) -> None:
        """These are deleted."""
        for entity in entities:
            self._last.pop(entity, None)

    def idle(self, catalogue: Catalogue) -> list[Entity]:
        """The entities that have not been used for as long as they live without use."""
        now = self._passed()
        return [
            entity
            for entity in catalogue.entities.values()
            if entity.auto_delete_on_idle < NO_LIMIT
            and now - self._last.get(entity.id, self._began) >= entity.auto_delete_on_idle
        ]


class Use:
    """Whether entities are in use beside each other. A subscription is its topic's."""

    def __init__(self, accesses: Accesses, arrivals: Arrivals, passed: Callable[[], int]) -> None:
        self._accesses = accesses
        self._arrivals = arrivals
        self._passed = passed
        self._looked: int | None = None
        self._families: set[int] = set()

    def is_alone(self, entity: int, catalogue: Catalogue) -> bool:
        """Whether nobody has used another queue or topic for some time, or waits there for messages.

        What it says may be old by `LOOK_AGAIN`.
        """
        now = self._passed()
        if self._looked is None or not 0 <= now - self._looked < LOOK_AGAIN:
            self._looked = now
            self._families = {
                each.topic_id if isinstance(each, Subscription) else each.id
                for each in catalogue.entities.values()
                if now - (self._accesses.last(each.id) or -STILL_IN_USE) < STILL_IN_USE
                or self._arrivals.is_expected_at(each.id)
            }
        return self._families <= {entity}
