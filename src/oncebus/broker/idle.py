"""Tracks when entities were last used.

Idle entities need no share, and are deleted if they have auto-delete on idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncebus.broker.waiting import Arrivals
from oncebus.model.entities import NO_LIMIT, Catalogue, Entity, Subscription
from oncebus.values.durations import SECOND

STILL_IN_USE = 600 * SECOND
"""How long after its last access an entity counts as in use."""
REFRESH = SECOND


class Accesses:
    """The last access to each entity. Kept in memory, so idle times start at 0 when the broker starts.

    `passed` is a monotonic clock: a wrong wall clock must not delete an entity.
    """

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._began = passed()
        self._last: dict[int, int] = {}
        self._changed: dict[int, int] = {}

    def note_change(self, entity: Entity) -> None:
        """Record that an entity was created or changed now; for a subscription, its topic too.

        Its idle time begins anew, but this is not an access.
        """
        self._changed |= dict.fromkeys(_with_topic(entity), self._passed())

    def note(self, entity: int) -> None:
        """Record that an entity is being used now."""
        self._last[entity] = self._passed()

    def note_use(self, entity: Entity) -> None:
        """Record that an entity is being used now; for a subscription, its topic too."""
        self._last |= dict.fromkeys(_with_topic(entity), self._passed())

    def last(self, entity: int) -> int | None:
        """Return when an entity was last used, on the monotonic clock; None if never since the broker started."""
        return self._last.get(entity)

    def forget(self, entities: Iterable[int]) -> None:
        """Forget entities that were deleted."""
        for entity in entities:
            self._last.pop(entity, None)
            self._changed.pop(entity, None)

    def idle(self, catalogue: Catalogue) -> list[Entity]:
        """Return the entities whose `auto_delete_on_idle` has passed since their last access."""
        now = self._passed()
        return [
            entity
            for entity in catalogue.entities.values()
            if entity.auto_delete_on_idle < NO_LIMIT and now - self._touched(entity.id) >= entity.auto_delete_on_idle
        ]

    def _touched(self, entity: int) -> int:
        return max(self._last.get(entity, self._began), self._changed.get(entity, self._began))


class Use:
    """Tells whether several entities are in use at the same time. A subscription counts as its topic."""

    def __init__(self, accesses: Accesses, arrivals: Arrivals, passed: Callable[[], int]) -> None:
        self._accesses = accesses
        self._arrivals = arrivals
        self._passed = passed
        self._refreshed: int | None = None
        # Queues and topics in use.
        self._in_use: set[int] = set()

    def is_alone(self, entity: int, catalogue: Catalogue) -> bool:
        """Return whether no other queue or topic was used lately or has a receiver waiting for messages.

        The answer may be up to `REFRESH` old, because computing it means going through all entities.
        """
        now = self._passed()
        if self._refreshed is None or not 0 <= now - self._refreshed < REFRESH:
            self._refreshed = now
            self._in_use = {
                each.topic_id if isinstance(each, Subscription) else each.id
                for each in catalogue.entities.values()
                if now - (self._accesses.last(each.id) or -STILL_IN_USE) < STILL_IN_USE
                or self._arrivals.is_expected_at(each.id)
            }
        return self._in_use <= {entity}


def _with_topic(entity: Entity) -> tuple[int, ...]:
    return (entity.id, entity.topic_id) if isinstance(entity, Subscription) else (entity.id,)
