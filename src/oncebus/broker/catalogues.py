"""The versions of the catalogue: the current one, its changes, and the old ones that rows still name."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from oncebus.broker.background import Background
from oncebus.broker.clock import Clock
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.waiting import Arrivals
from oncebus.engine.engine import CatalogueVersions, Engine
from oncebus.engine.store import Kind, Place, Policy, Store, SubQueue
from oncebus.model.entities import Catalogue, Entity, Namespace, Queue, Subscription, Topic
from oncebus.model.entities.catalogue_json import check_stored_form
from oncebus.model.entities.detection_keys import BODY
from oncebus.model.entities.rule_parsing import compile_rule
from oncebus.model.entities.timespans import in_words
from oncebus.model.entities.weights import LIGHT, TopicCost, costs_by_topic
from oncebus.values.errors import OncebusError
from oncebus.values.threads import Threads

log = logging.getLogger(__name__)

Changed = Callable[[Sequence[Entity], set[int]], None]
"""Called with the entities that were created or changed and with the ids of those that were deleted."""


def open_catalogue(engine: Engine, namespace: Namespace) -> Catalogue:
    """Return the catalogue of an engine. A new engine gets one for `namespace`, an old one its `longest_window`.

    Finishes the deletion of entities that a crash interrupted.
    """
    catalogue = engine.catalogues.latest()
    if catalogue is None:
        catalogue = Catalogue(version=1, namespace=namespace)
        engine.catalogues.publish(catalogue)
    catalogue = catalogue.allow_windows(namespace.longest_window)
    _warn_of_long_windows(catalogue)
    _forget_deleted(engine.store, catalogue, engine.log.last_commit)
    return catalogue


class Catalogues:
    """The current version of the catalogue, with what follows from it. Changes are made one after the other.

    `highest_commit` returns an upper bound for the commits of all rows appended so far. `changed` is called when a new
    version has taken effect, with no await in between.
    """

    def __init__(
        self,
        versions: CatalogueVersions,
        current: Catalogue,
        clock: Clock,
        store: StoreThread,
        arrivals: Arrivals,
        background: Background,
        threads: Threads,
        highest_commit: Callable[[], int],
        changed: Changed,
    ) -> None:
        self.versions = versions
        self._clock = clock
        self._store = store
        self._arrivals = arrivals
        self._background = background
        self._threads = threads
        self._highest_commit = highest_commit
        self._changed = changed
        self._changing = asyncio.Lock()
        # Pairs (commit, version): rows after this commit name this version of the catalogue or a newer one.
        self._published: deque[tuple[int, int]] = deque()
        self._use(current)

    def _use(self, current: Catalogue) -> None:
        self.current = current
        self.policies = _policies_of(current)
        self._costs = costs_by_topic(current, above=1)

    def cost_of(self, entity: int) -> TopicCost:
        """Return what an entity does with each message that is sent to it."""
        return self._costs.get(entity, LIGHT)

    def counts_bodies(self, entity: int) -> bool:
        """Return whether detection counts the bodies of an entity's messages."""
        found = self.current.entity(entity)
        return isinstance(found, Queue | Topic) and found.detection_key == BODY

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """See `Broker.change`."""
        # A published version must take effect, even if the caller is cancelled.
        return await self._background.finish(self._change(how))

    async def _change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        async with self._changing:
            before = self.current
            after = how(before, self._clock.now())
            if after is before:
                return before
            touched = [entity for entity in after.entities.values() if before.entity(entity.id) != entity]
            for entity in touched:
                check_stored_form(entity)
                for rule in entity.rules if isinstance(entity, Subscription) else ():
                    compile_rule(rule)
            await self._threads.run(self.versions.publish, after)
            # Rows that wait for their commit may still name the previous version. And read it before the next await:
            # after this, requeue appends nothing of deleted entities any more.
            appended = self._highest_commit()
            self._published.append((appended, after.version))
            self._use(after)
            deleted = {entity.id for entity in before.entities.values() if after.entity(entity.id) is None}
            self._changed(touched, deleted)
            if deleted:
                await self._delete(deleted, after.version, appended)
            return after

    async def _delete(self, entities: set[int], version: int, appended: int) -> None:
        def delete(store: Store) -> None:
            store.entities.delete(sorted(entities), appended)
            store.progress.note_catalogue(version)

        try:
            await self._store.run(delete)
        except OncebusError as error:
            # The entities are deleted anyway: nobody can reach their messages, and the next start deletes those.
            log.warning("Cannot delete the messages of deleted entities; the next start deletes them: %s", error)
        # Wake the receivers that wait there, so that they get `NotFound`.
        self._arrivals.notify([Place(entity, sub_queue) for entity in entities for sub_queue in SubQueue])

    async def forget_up_to(self, commit: int) -> None:
        """Delete the versions that only commits up to this one name. Nobody reads these commits any more."""
        needed = None
        while self._published and self._published[0][0] <= commit:
            needed = self._published.popleft()[1]
        if needed is not None:
            await self._threads.run(self.versions.delete_below, needed)


def _policies_of(catalogue: Catalogue) -> dict[int, Policy]:
    """Return a policy for every queue, topic and subscription, by id."""
    return {entity.id: _policy(catalogue, entity) for entity in catalogue.entities.values()}


def _policy(catalogue: Catalogue, entity: Entity) -> Policy:
    if isinstance(entity, Topic):
        return Policy(kind=Kind.TOPIC, partitioned=entity.enable_partitioning)
    forward = catalogue.forward_target(entity.forward_to)
    forward_dead_letters = catalogue.forward_target(entity.forward_dead_lettered_messages_to)
    source = entity if isinstance(entity, Queue) else catalogue.topic_of(entity)
    return Policy(
        kind=Kind.QUEUE if isinstance(entity, Queue) else Kind.SUBSCRIPTION,
        lock_duration=entity.lock_duration,
        max_delivery_count=entity.max_delivery_count,
        dead_letter_on_expiry=entity.dead_lettering_on_message_expiration,
        requires_session=entity.requires_session,
        forward_to=forward.id if forward else None,
        forward_dead_letters_to=forward_dead_letters.id if forward_dead_letters else None,
        partitioned=source.enable_partitioning,
    )


def _warn_of_long_windows(catalogue: Catalogue) -> None:
    """Log the entities whose windows exceed the limit: it was higher when they got them. They keep their windows."""
    most = catalogue.namespace.longest_window
    for entity in catalogue.entities.values():
        window = None if isinstance(entity, Subscription) else entity.window
        if window is not None and window > most:
            words = entity.path, in_words(window), in_words(most)
            log.warning("'%s' keeps its window of %s, although the longest window is now %s", *words)


def _forget_deleted(store: Store, catalogue: Catalogue, appended: int) -> None:
    """Finish the deletion of entities that a crash interrupted."""
    deleted = {mark.entity for mark in store.progress.highest() if catalogue.entity(mark.entity) is None}
    if deleted:
        with store.transaction():
            store.entities.delete(sorted(deleted), appended)
