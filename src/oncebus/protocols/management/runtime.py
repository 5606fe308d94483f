"""The current state of an entity that management shows beside its description: counts, size and times."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.broker.broker import Broker
from oncebus.engine.store import Counts
from oncebus.model.entities import (
    Catalogue,
    CorrelationFilter,
    Entity,
    FalseFilter,
    Filter,
    NotFound,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The current state of an entity.

    `accessed_at` is in microseconds since 1970, `FIRST_MOMENT` for an unused entity. The numbers of subscriptions and
    filters are 0 unless it is a topic.
    """

    counts: Counts
    size: int
    accessed_at: int
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0

    @property
    def active(self) -> int:
        """Return the number of active messages as the service counts them: deferred ones too."""
        return self.counts.active + self.counts.deferred

    @property
    def details(self) -> dict[str, int]:
        """Return the numbers of messages in each state, by the names of the Resource Manager."""
        return {
            "activeMessageCount": self.active,
            "deadLetterMessageCount": self.counts.dead_letter,
            "scheduledMessageCount": self.counts.scheduled,
            "transferMessageCount": self.counts.transfer,
            "transferDeadLetterMessageCount": self.counts.transfer_dead_letter,
        }

    @property
    def messages(self) -> int:
        """Return the number of messages in all states."""
        return sum(self.details.values())


def namespace_times(catalogue: Catalogue, now: int) -> tuple[int, int]:
    """Return when the namespace was created and when it last changed, derived from its entities.

    A namespace has no times of its own. Without entities, both are `now`.
    """
    entities = catalogue.entities.values()
    created = min((entity.created_at for entity in entities), default=now)
    return created, max((entity.updated_at for entity in entities), default=now)


class Observer:
    """Reads the current state of entities.

    Counts include the messages that were sent before the call, because `Broker.counts` waits for them.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def runtime_of(self, entity: Entity) -> Runtime:
        """Return the state of an entity; counts of 0 if it has been deleted meanwhile."""
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
            # True and false are SQL filters to the service: 1=1 and 1=0.
            _filters(subscriptions, SqlFilter, TrueFilter, FalseFilter),
            _filters(subscriptions, CorrelationFilter),
        )

    async def runtimes_of(self, entities: Sequence[Entity]) -> list[Runtime]:
        """Return the states of entities, in their order."""
        return await asyncio.gather(*(self.runtime_of(entity) for entity in entities))


def _filters(subscriptions: Sequence[Subscription], *kinds: type[Filter]) -> int:
    return sum(isinstance(rule.filter, kinds) for each in subscriptions for rule in each.rules)
