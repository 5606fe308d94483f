"""The entities as operations find them: what is at an address, its policy, and what is known of its use."""

from __future__ import annotations

from oncebus.broker import addresses
from oncebus.broker.accounting import Accounting
from oncebus.broker.addresses import Address, parse_address
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.clock import Clock
from oncebus.broker.consumers import Consumers
from oncebus.broker.idle import Accesses
from oncebus.broker.refusals import Refusals
from oncebus.broker.waiting import Progress
from oncebus.engine.store import Policy, SubQueue
from oncebus.model.entities import Catalogue, Entity, NotFound, Queue, Subscription
from oncebus.values.durations import FIRST_MOMENT
from oncebus.values.errors import OncebusError


class Entities:
    """Finds entities for operations, and records that they are used.

    `read_your_sends` is how many seconds a query about an entity waits for messages that were accepted before it.
    """

    def __init__(
        self,
        catalogues: Catalogues,
        accesses: Accesses,
        consumers: Consumers,
        refusals: Refusals,
        accounting: Accounting,
        progress: Progress,
        clock: Clock,
        read_your_sends: float,
    ) -> None:
        self.catalogues = catalogues
        self._accesses = accesses
        self._consumers = consumers
        self._refusals = refusals
        self._accounting = accounting
        self._progress = progress
        self._read_your_sends = read_your_sends
        # The wall time at which `passed` was 0. Read once, so that an access always shows the same time.
        self._began = clock.now() - clock.passed()

    @property
    def catalogue(self) -> Catalogue:
        """Return all entities as they are now."""
        return self.catalogues.current

    def policy(self, entity: Entity) -> Policy:
        """Return the policy of an entity. Raises `NotFound` if it was deleted after the caller found it."""
        found = self.catalogues.policies.get(entity.id)
        if found is None:
            raise NotFound(entity.path)
        return found

    def use(self, address: Address) -> Queue | Subscription:
        """Return the queue or subscription at an address, and record that it is used. See `addresses.holding`."""
        entity = addresses.holding(self.catalogue, address)
        self._accesses.note_use(entity)
        return entity

    def note_use(self, entity: Entity) -> None:
        """Record that an entity is being used now."""
        self._accesses.note_use(entity)

    def note_receiver(self, entity: Entity, sub_queue: SubQueue) -> None:
        """Record that somebody asks for messages of an entity now."""
        self._accesses.note_use(entity)
        if sub_queue is SubQueue.MAIN:
            self._consumers.note(entity.id)

    def accessed_at(self, entity: Entity) -> int:
        """Return when an entity was last used, in microseconds since 1970.

        `FIRST_MOMENT` if it was not used since the broker started.
        """
        last = self._accesses.last(entity.id)
        return FIRST_MOMENT if last is None else self._began + last

    def received_at(self, entity: Entity) -> int | None:
        """Return when somebody last asked for messages of an entity, in microseconds since 1970; None if unknown.

        It is unknown until somebody asks after the broker has started.
        """
        last = self._consumers.last_asked(entity.id)
        return None if last is None else self._began + last

    def note_refusal(self, path: str, error: Exception) -> None:
        """Count a refused request for the entity at a path.

        The path is untrusted: an unauthenticated client may have made it up.
        """
        try:
            entity = self.catalogue.find(parse_address(path).path)
        except OncebusError:
            entity = None
        self._refusals.note(None if entity is None else entity.id, path, error)

    async def see_sends(self, entity: Entity) -> None:
        """Wait until messages accepted so far for an entity are visible, but no longer than `read_your_sends`."""
        await self._progress.wait_for(self._accounting.last_sent(entity), self._read_your_sends)
