"""What an entity holds just now: what management shows beside a description."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.broker.broker import Broker
from oncebus.entities import Catalogue, CorrelationFilter, Entity, NotFound, SqlFilter, Subscription, Topic
from oncebus.store import Counts


@dataclass(frozen=True, slots=True)
class Runtime:
    """`accessed_at` is in microseconds since 1970. The counts of subscriptions and filters are a topic's."""

    counts: Counts
    size: int
    accessed_at: int
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0

    @property
    def messages(self) -> int:
        """How many messages there are in all states."""
        counts = self.counts
        there = counts.active + counts.deferred + counts.scheduled + counts.dead_letter
        return there + counts.transfer + counts.transfer_dead_letter


def namespace_times(catalogue: Catalogue, now: int) -> tuple[int, int]:
    """Return when the namespace was made and last changed, as far as its entities tell.

    A namespace keeps no times of its own. One without entities is as old as the question.
    """
    entities = catalogue.entities.values()
    created = min((entity.created_at for entity in entities), default=now)
    return created, max((entity.updated_at for entity in entities), default=now)


class Observer:
    """Looks at what entities hold. What was sent before is seen, as far as the broker waits for it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def runtime_of(self, entity: Entity) -> Runtime:
        """What an entity holds; nothing if it was deleted meanwhile."""
        try:
            counts = await self._broker.counts(entity.path)
        except NotFound:
            counts = Counts()
        accessed_at = self._broker.accessed_at(entity)
        if not isinstance(entity, Topic):
            return Runtime(counts, counts.size, accessed_at)
        subscriptions = self._broker.catalogue.subscriptions_of(entity)
        return Runtime(
            counts,
            self._broker.held(entity),
            accessed_at,
            len(subscriptions),
            _filters(subscriptions, SqlFilter),
            _filters(subscriptions, CorrelationFilter),
        )

    async def runtimes_of(self, entities: Sequence[Entity]) -> list[Runtime]:
        """What each of them holds."""
        return await asyncio.gather(*(self.runtime_of(entity) for entity in entities))


def _filters(subscriptions: Sequence[Subscription], kind: type[SqlFilter | CorrelationFilter]) -> int:
    return sum(isinstance(rule.filter, kind) for each in subscriptions for rule in each.rules)
