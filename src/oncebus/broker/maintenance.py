"""What people do with the messages of an entity: delete them, and discard or resubmit dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock
from oncebus.broker.entities import Entities
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.waiting import Arrivals
from oncebus.engine.store import Outcome, Place, Purged, Store, SubQueue

PURGED_AT_ONCE = 500
"""The number of messages that a purge deletes before other callers may use the store."""
PURGE_READS_AT_ONCE = 5_000
"""The number of messages, with those that stay, that a purge reads before other callers may use the store."""
MOST_PURGED = 50_000
"""The number of messages that one call of `purge` deletes at most."""


class Maintenance:
    """Deletes messages, and resubmits dead letters."""

    def __init__(
        self, entities: Entities, clock: Clock, store: StoreThread, arrivals: Arrivals, chores: Chores
    ) -> None:
        self._entities = entities
        self._clock = clock
        self._store = store
        self._arrivals = arrivals
        self._chores = chores

    async def discard_dead_letters(self, address: Address, sequences: Sequence[int]) -> list[Outcome]:
        """Delete dead letters for good. Return an outcome for each."""
        entity = self._entities.use(address)
        return await self._store.run(lambda store: store.dead_letters.discard(entity.id, sequences, address.sub_queue))

    async def delete_messages(
        self, address: Address, enqueued_before: int, count: int, session: str | None = None
    ) -> int:
        """Delete up to `count` of the oldest messages that nobody has locked, and return how many.

        With `session`, only messages of that session.
        """
        entity = addresses.holding(self._entities.catalogue, address)
        await self._entities.see_sends(entity)
        return await self._store.run(
            lambda store: store.messages.delete_oldest(entity.id, enqueued_before, count, address.sub_queue, session)
        )

    async def purge(self, address: Address, before: int | None = None) -> Purged:
        """Delete the active messages that are there now and that nobody has locked, up to `MOST_PURGED`.

        Deferred, scheduled and locked messages stay. The ids of deleted messages stay remembered. If the result
        `has_more`, call this again with its `before`: then messages that arrive meanwhile are not deleted.
        """
        entity = addresses.holding(self._entities.catalogue, address)
        await self._entities.see_sends(entity)
        if before is None:
            before = self._clock.last + 1
        deleted = 0
        after: int | None = -1
        while after is not None and deleted < MOST_PURGED:
            # Others use the store between two steps.
            step, after = await self._store.run(
                partial(_purge, entity=entity.id, before=before, sub_queue=address.sub_queue, after=after)
            )
            deleted += step
        counts = await self._store.run(lambda store: store.entities.counts(entity.id))
        left = {
            SubQueue.MAIN: counts.active + counts.deferred + counts.scheduled,
            SubQueue.DEAD_LETTER: counts.dead_letter,
            SubQueue.TRANSFER_DEAD_LETTER: counts.transfer_dead_letter,
        }
        return Purged(deleted, left[address.sub_queue], before, after is not None)

    async def resubmit(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Turn dead letters into new messages of their entity. Return an outcome for each.

        They skip detection and come after all messages that were accepted before.
        """
        entity = self._entities.use(Address(path))
        policy, now, behind = self._entities.policy(entity), self._clock.stamp(), self._clock.behind()
        outcomes = await self._store.run(
            lambda store: store.dead_letters.resubmit(entity.id, sequences, policy, now, behind=behind)
        )
        self._arrivals.notify([Place(entity.id, SubQueue.MAIN)])
        # Their return is durable already. Append them now, so that the caller's next query waits for them as for sends.
        await self._chores.forward()
        return outcomes


def _purge(store: Store, *, entity: int, before: int, sub_queue: SubQueue, after: int) -> tuple[int, int | None]:
    return store.messages.purge(entity, before, PURGED_AT_ONCE, sub_queue, after, PURGE_READS_AT_ONCE)
