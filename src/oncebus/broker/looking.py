"""The queries of people who look for messages and duplicates. Each reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.bodies import Bodies, Received, with_bodies
from oncebus.broker.clock import Clock
from oncebus.broker.entities import Entities
from oncebus.broker.store_thread import COUNTED_AT_ONCE, StoreThread
from oncebus.engine.store import NAMESPACE, Counts, Duplicate, Forget, Found, Message, Samples, Span, Store
from oncebus.model.entities import Entity, Subscription

T = TypeVar("T")

READ_AT_ONCE = 2_000
"""How many messages a search reads before other callers may use the store."""
MOST_READ = 20_000
"""How many messages one search reads."""
NEWEST = 2**63 - 1
"""Where a search of all entities begins."""


class Searched(NamedTuple):
    """The result of a search. If `following` is not None, it stopped early, and can go on from there."""

    found: list[Found]
    following: int | None


class Peeked(NamedTuple):
    """The messages of an entity that a search found. `following` is as in `Searched`."""

    found: list[Received]
    following: int | None


class Looking:
    """Queries for people and for monitoring."""

    def __init__(self, entities: Entities, clock: Clock, store: StoreThread, bodies: Bodies) -> None:
        self._entities = entities
        self._clock = clock
        self._store = store
        self._bodies = bodies

    async def counts(self, path: str) -> Counts:
        """Return the counts of an entity, including messages that were sent before the call."""
        entity = addresses.found(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.entities.counts(entity.id))

    async def counts_now(self, entities: Sequence[int]) -> list[Counts]:
        """Return the counts of entities, given by their ids, without waiting for messages in the pipeline.

        The id `NAMESPACE` stands for all entities together. Its totals include those of deleted entities.
        """
        return await self._read_in_steps(lambda store, entity: store.entities.counts(entity), entities)

    async def oldest_waiting(self, entities: Sequence[int]) -> list[int | None]:
        """Return when the oldest message that waits for a receiver was enqueued, for each entity; None if none waits.

        A message that a receiver has locked, or whose session is locked, does not wait.
        """
        return await self._read_in_steps(lambda store, entity: store.entities.oldest_waiting(entity), entities)

    async def history(self, entity: Entity | None, span: Span) -> Samples:
        """Return what happened in each slot of a span up to now, for an entity or, with None, for the namespace.

        A slot is None if nothing is known about it: the broker did not run, or the entity did not exist.
        """
        number, since = (NAMESPACE, 0) if entity is None else (entity.id, entity.created_at)
        now = self._clock.steady()
        return await self._store.run(lambda store: store.samples.read(number, span, now, since))

    # Messages

    async def search(
        self,
        address: Address,
        start: int,
        count: int,
        *,
        message_id: str | None = None,
        session: str | None = None,
        most_bytes: int | None = None,
    ) -> Peeked:
        """Return up to `count` messages of an entity with this id and session, from a sequence number on.

        Reads at most `MOST_READ` messages. Locks nothing.
        """
        entity = addresses.receivable(self._entities.catalogue, address, is_sessionful=False, is_browser=True)
        self._entities.note_use(entity)
        await self._entities.see_sends(entity)
        numbers: list[int] = []
        at = start

        def search(store: Store, start: int) -> tuple[list[int], int | None]:
            return store.messages.search(entity.id, address.sub_queue, start, READ_AT_ONCE, message_id, session)

        for _ in range(MOST_READ // READ_AT_ONCE):
            some, following = await self._store.run(partial(search, start=at))
            numbers += some
            if following is None or len(numbers) >= count:
                break
            at = following
        if len(numbers) > count:
            numbers, following = numbers[:count], numbers[count]
        now = self._clock.steady()

        def read(store: Store) -> list[Message]:
            found: list[Message] = []
            for number in numbers:
                # Others may have received the message meanwhile; then this finds a later one.
                found += [
                    each
                    for each in store.messages.peek(entity.id, number, 1, now, None, address.sub_queue)
                    if each.sequence == number
                ]
                if most_bytes is not None and sum(each.size for each in found) >= most_bytes:
                    break
            return found

        found = await self._store.run(read)
        if found and found[-1].sequence != numbers[-1]:
            following = found[-1].sequence + 1
        return Peeked(await with_bodies(found, self._bodies), following)

    async def search_everywhere(self, message_id: str, before: int = NEWEST, count: int = 100) -> Searched:
        """Return messages of all entities with this id, newest first. Reads at most `MOST_READ` messages."""
        found: list[Found] = []
        at = before

        def search(store: Store, before: int) -> tuple[list[Found], int | None]:
            return store.messages.search_everywhere(message_id, before, READ_AT_ONCE)

        for _ in range(MOST_READ // READ_AT_ONCE):
            some, following = await self._store.run(partial(search, before=at))
            found += some
            if following is None or len(found) >= count:
                break
            at = following
        return Searched(found, following)

    async def present(self, entity: int, sequences: Sequence[int]) -> list[Found]:
        """Return the messages of an entity with these numbers that are still there, dead letters included."""
        return await self._store.run(lambda store: store.messages.at(entity, sequences))

    # Duplicates and forgets

    async def duplicates(
        self, path: str, *, message_id: str | None = None, since: int | None = None, limit: int = 100, after: int = 0
    ) -> list[Duplicate]:
        """Return a page of the dropped duplicates of a queue or topic, oldest first.

        `after` is the `number` of the last duplicate on the previous page.
        """
        entity = addresses.found(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
        return await self._store.run(
            lambda store: store.duplicates.page(entity.id, message_id=message_id, since=since, limit=limit, after=after)
        )

    async def forgets(self, path: str, limit: int = 100, after: int = 0) -> list[Forget]:
        """Return a page of the forgets of a queue or topic, oldest first. `after` is as for `duplicates`."""
        entity = addresses.found(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.forgets.page(entity.id, limit, after))

    async def newest_forgets(self, path: str, limit: int = 100) -> list[Forget]:
        """Return the newest forgets of a queue or topic, newest first."""
        entity = addresses.found(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.forgets.newest(entity.id, limit))

    async def newest_duplicates(
        self, path: str, *, since: int = 0, limit: int = 100, before: int | None = None
    ) -> list[Duplicate]:
        """Return the dropped duplicates of a queue or topic since a time, newest first.

        `before` is the `number` of the last duplicate on the previous page.
        """
        entity = addresses.found(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.duplicates.newest(entity.id, since, limit, before))

    async def newest_duplicates_of_all(self, *, since: int = 0, limit: int = 100) -> list[Duplicate]:
        """Return the newest dropped duplicates of all queues and topics since a time, newest first."""
        return await self._merge_duplicates(lambda store, some: store.duplicates.newest_of(some, since, limit), limit)

    async def duplicates_since(self, path: str, since: int) -> int:
        """Return how many dropped duplicates of a queue or topic are on record since a time."""
        entity = addresses.found(self._entities.catalogue, path)
        return await self._store.run(lambda store: store.duplicates.count_since(entity.id, since))

    async def duplicates_with_id(self, message_id: str, limit: int = 100) -> list[Duplicate]:
        """Return the newest dropped duplicates of all queues and topics with this id, newest first."""
        return await self._merge_duplicates(
            lambda store, some: store.duplicates.newest_with_id(some, message_id, limit), limit
        )

    async def _read_in_steps(self, read: Callable[[Store, int], T], entities: Sequence[int]) -> list[T]:
        """Call `read` for each entity, in steps: others use the store in between."""
        found: list[T] = []
        for start in range(0, len(entities), COUNTED_AT_ONCE):
            some = entities[start : start + COUNTED_AT_ONCE]
            found += await self._store.run(partial(_read_each, read=read, entities=some))
        return found

    async def _merge_duplicates(
        self, read: Callable[[Store, Sequence[int]], list[Duplicate]], limit: int
    ) -> list[Duplicate]:
        """Call `read` for all queues and topics that detect duplicates, in steps. Return the newest ones."""
        entities = self._detecting()
        found: list[Duplicate] = []
        for start in range(0, len(entities), COUNTED_AT_ONCE):
            found += await self._store.run(partial(_read_some, read, entities[start : start + COUNTED_AT_ONCE]))
        return sorted(found, key=lambda each: -each.time)[:limit]

    def _detecting(self) -> list[int]:
        """Return the entities that may have dropped duplicates. Detection cannot be switched off."""
        entities = self._entities.catalogue.entities.values()
        return [each.id for each in entities if not isinstance(each, Subscription) and each.window is not None]


def _read_some(
    read: Callable[[Store, Sequence[int]], list[Duplicate]], entities: Sequence[int], store: Store
) -> list[Duplicate]:
    return read(store, entities)


def _read_each(store: Store, *, read: Callable[[Store, int], T], entities: Sequence[int]) -> list[T]:
    return [read(store, entity) for entity in entities]
