"""The sessions of receivers: lock, renew and release them, and keep their state."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.background import Background
from oncebus.broker.clock import Clock
from oncebus.broker.dispatching import Dispatchers, wait_at
from oncebus.broker.entities import Entities
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.waiting import Arrivals, Patience
from oncebus.engine.store import Place, SessionLock, SessionLockLost, SubQueue
from oncebus.model.entities import Entity
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)


class SessionLocks:
    """Locks sessions for receivers."""

    def __init__(
        self, entities: Entities, clock: Clock, store: StoreThread, arrivals: Arrivals, background: Background
    ) -> None:
        self._entities = entities
        self._clock = clock
        self._store = store
        self._background = background
        self._dispatchers = Dispatchers[SessionLock](arrivals)

    async def accept(self, address: Address, session: str | None, wait: float = 0.0) -> SessionLock | None:
        """Lock a session, or the next free one if `session` is None.

        Return None if none is free within `wait` seconds.
        """
        entity = addresses.receivable(self._entities.catalogue, address, is_sessionful=True)
        if session is not None or wait <= 0:
            # A session that is named is free or taken, and nobody waits for it.
            return await self.lock(entity, session)
        self._entities.note_receiver(entity, SubQueue.MAIN)
        place = Place(entity.id, SubQueue.MAIN)
        dispatcher = self._dispatchers.find(entity.id, place, lambda: _FreeSessions(self, entity))
        locks = await wait_at(dispatcher, 1, Patience(wait), self._background)
        return locks[0] if locks else None

    async def lock(self, entity: Entity, session: str | None) -> SessionLock | None:
        """Lock a session, or the next free one if `session` is None. Return None if none is free now."""
        policy, now = self._entities.policy(entity), self._clock.steady()
        self._entities.note_receiver(entity, SubQueue.MAIN)
        return await self._store.run(
            lambda store: store.sessions.accept(entity.id, session, policy, now), unwanted=self._release
        )

    async def renew(self, lock: SessionLock) -> SessionLock:
        """Renew the lock of a session. Raises `SessionLockLost`."""
        policy, now = self._entities.policy(self._of_lock(lock)), self._clock.steady()
        return await self._store.run(lambda store: store.sessions.renew(lock, policy, now))

    async def release(self, lock: SessionLock) -> None:
        """Release a session and the messages that were received in it and not settled."""
        policy = self._entities.policy(self._of_lock(lock))
        await self._store.run(lambda store: store.sessions.release(lock, policy))

    async def state(self, lock: SessionLock) -> bytes | None:
        """Return the state that receivers have stored in a session."""
        self._of_lock(lock)
        return await self._store.run(lambda store: store.sessions.state(lock.entity, lock.session))

    async def set_state(self, lock: SessionLock, state: bytes | None) -> None:
        """Replace the state of a locked session. Raises `SessionLockLost`."""
        self._of_lock(lock)
        now = self._clock.steady()
        await self._store.run(lambda store: store.sessions.set_state(lock, state, now))

    async def names(
        self, address: Address, *, updated_since: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[str]:
        """List the sessions that have messages or state, by name.

        With `updated_since`, list those whose state was set after it.
        """
        entity = addresses.holding(self._entities.catalogue, address)
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.sessions.names(entity.id, limit, updated_since, after))

    def _of_lock(self, lock: SessionLock) -> Entity:
        entity = self._entities.catalogue.entity(lock.entity)
        if entity is None:
            raise SessionLockLost(f"Session '{lock.session}' is no longer locked: its entity was deleted.")
        self._entities.note_use(entity)
        return entity

    def _release(self, lock: SessionLock | None) -> None:
        if lock is not None:
            self._background.start(self.release(lock))


class _FreeSessions:
    """The free sessions of one entity, for a dispatcher."""

    most = 1
    deletes = False

    def __init__(self, locks: SessionLocks, entity: Entity) -> None:
        self._locks = locks
        self._entity = entity

    async def look(self, wanted: int) -> list[SessionLock]:  # noqa: ARG002
        """See `Source`."""
        lock = await self._locks.lock(self._entity, None)
        return [] if lock is None else [lock]

    async def put_back(self, items: Sequence[SessionLock]) -> None:
        """See `Source`."""
        for lock in items:
            try:
                await self._locks.release(lock)
            except OncebusError as error:
                log.info("A session could not be released and stays locked until its lock expires: %s", error)
