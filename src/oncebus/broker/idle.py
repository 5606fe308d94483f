"""When entities were last used: those that are idle for too long delete themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncebus.entities import NO_LIMIT, Catalogue, Entity, Queue, Topic


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


def without(catalogue: Catalogue, entity: Entity) -> Catalogue:
    """The catalogue without an entity."""
    match entity:
        case Queue():
            return catalogue.delete_queue(entity.name)
        case Topic():
            return catalogue.delete_topic(entity.name)
        case _:
            return catalogue.delete_subscription(entity.topic, entity.name)
