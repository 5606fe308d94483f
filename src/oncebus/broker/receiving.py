"""The operations of receivers: receive, settle, peek, and lock sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.base import BrokerBase
from oncebus.broker.bodies import Received, with_bodies
from oncebus.broker.waiting import Patience
from oncebus.engine.store import (
    Action,
    Message,
    Mode,
    Outcome,
    Place,
    SessionLock,
    SessionLockLost,
    Settlement,
    SubQueue,
)
from oncebus.model.entities import Entity, Queue, Subscription

T = TypeVar("T")
log = logging.getLogger(__name__)


class Receiving(BrokerBase):
    """Operations for receivers and browsers."""

    async def receive(
        self,
        address: Address,
        count: int,
        *,
        mode: Mode = Mode.PEEK_LOCK,
        wait: float | Patience = 0.0,
        session: SessionLock | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Receive up to `count` messages, oldest first.

        Waits up to `wait` seconds for the first one; returns none after that. A caller that may have to stop waiting
        passes a `Patience`: if it cancels the call instead, messages that were deleted for it are lost.

        `most_bytes` limits their total size, but a single message may exceed it. The same holds for `receive_deferred`
        and `peek`.
        """
        entity = addresses.receivable(self.catalogue, address, is_sessionful=session is not None)
        place = Place(entity.id, address.sub_queue)

        began = 0

        async def attempt() -> list[Message]:
            nonlocal began
            began = self.clock.passed()
            policy, now = self._policy(entity), self.clock.steady()
            self._core.accesses.note_use(entity)
            if address.sub_queue is SubQueue.MAIN:
                self.consumers.note(entity.id)
            return await self._store.run(
                lambda store: store.messages.receive(
                    entity.id, count, mode, policy, now, session, address.sub_queue, most_bytes
                ),
                unwanted=lambda messages: self._put_back(entity, messages),
            )

        found = await self._wait_at(place, attempt, wait if isinstance(wait, Patience) else Patience(wait)) or []
        if found and address.sub_queue is SubQueue.MAIN:
            self._observe(found)
        return await self._handed_out(entity, found, mode, began)

    def arrivals(self, address: Address) -> AbstractContextManager[asyncio.Event]:
        """Return a context with an event that is set whenever there may be something new to receive at an address."""
        return self._core.arrivals.expected_at(Place(addresses.holding(self.catalogue, address).id, address.sub_queue))

    def receivable(self, address: Address, *, is_sessionful: bool) -> Queue | Subscription:
        """Return the queue or subscription at an address. Raises the errors that `receive` would raise."""
        return addresses.receivable(self.catalogue, address, is_sessionful=is_sessionful)

    def browsable(self, address: Address) -> Queue | Subscription:
        """Return the queue or subscription at an address. Raises the errors that `peek` would raise."""
        return addresses.receivable(self.catalogue, address, is_sessionful=False, is_browser=True)

    async def receive_deferred(
        self,
        address: Address,
        sequences: Sequence[int],
        *,
        mode: Mode,
        session: SessionLock | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Receive deferred messages by their numbers."""
        entity = addresses.receivable(
            self.catalogue, address, is_sessionful=session is not None, is_browser=session is None
        )
        await self._see_sends(entity)
        policy, now, began = self._policy(entity), self.clock.steady(), self.clock.passed()
        found = await self._store.run(
            lambda store: store.messages.receive_deferred(
                entity.id, sequences, mode, policy, now, session, address.sub_queue, most_bytes
            ),
            unwanted=lambda messages: self._put_back(entity, messages),
        )
        return await self._handed_out(entity, found, mode, began)

    async def settle(
        self, address: Address, settlements: Sequence[Settlement], session: SessionLock | None = None
    ) -> list[Outcome]:
        """Settle locked messages. Return an outcome for each.

        The lock of a message that a transaction settles is not touched until that has ended.
        """
        entity = addresses.holding(self.catalogue, address)
        policy, now, began = self._policy(entity), self.clock.steady(), self.clock.passed()
        self._core.accesses.note_use(entity)
        enlisted = self._core.committer.enlisted
        taken = {each.token for each in settlements if each.token in enlisted} if enlisted else set()
        free = [each for each in settlements if each.token not in taken] if taken else settlements
        outcomes = await self._store.run(
            lambda store: store.locks.settle(entity.id, free, policy, now, session=session)
        )
        if taken:
            done = iter(outcomes)
            outcomes = [Outcome.IN_TRANSACTION if each.token in taken else next(done) for each in settlements]
        self._core.tracing.settled(settlements, outcomes, began)
        if any(settlement.action is not Action.COMPLETE for settlement in settlements):
            self._core.chores.note_settled(entity.id)
        return outcomes

    def when_rolled_back(self, token: bytes, then: Callable[[], object]) -> None:
        """Call `then` if the transaction that settles the message with a lock token is rolled back; now if none does.

        Of several calls for a token, the last one counts.
        """
        transaction = self._core.committer.enlisted.get(token)
        if transaction is None:
            then()
        else:
            transaction.when_rolled_back(then, token)

    async def renew_locks(self, address: Address, tokens: Sequence[bytes]) -> list[int | Outcome]:
        """Renew the locks of messages. Return the new end of each lock, or why it cannot be renewed."""
        entity = addresses.holding(self.catalogue, address)
        policy, now = self._policy(entity), self.clock.steady()
        self._core.accesses.note_use(entity)
        return await self._store.run(lambda store: store.locks.renew(entity.id, tokens, policy, now))

    async def locked_until(
        self, address: Address, tokens: Sequence[bytes], session: SessionLock | None = None
    ) -> list[int | None]:
        """Return when the locks with these tokens expire; None for each that is lost."""
        entity = addresses.holding(self.catalogue, address)
        now = self.clock.steady()
        return await self._store.run(lambda store: store.locks.ends(entity.id, tokens, now, session))

    async def peek(
        self,
        address: Address,
        from_sequence: int,
        count: int,
        session: str | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Return messages in any state from a sequence number on, without locking them."""
        entity = self.browsable(address)
        self._core.accesses.note_use(entity)
        await self._see_sends(entity)
        now = self.clock.steady()
        found = await self._store.run(
            lambda store: store.messages.peek(
                entity.id, from_sequence, count, now, session, address.sub_queue, most_bytes
            )
        )
        return await with_bodies(found, self._core.bodies)

    # Sessions

    async def accept_session(self, address: Address, session: str | None, wait: float = 0.0) -> SessionLock | None:
        """Lock a session, or the next free one if `session` is None.

        Return None if none is free within `wait` seconds.
        """
        entity = addresses.receivable(self.catalogue, address, is_sessionful=True)
        place = Place(entity.id, SubQueue.MAIN)

        async def attempt() -> SessionLock | None:
            policy, now = self._policy(entity), self.clock.steady()
            self._core.accesses.note_use(entity)
            self.consumers.note(entity.id)
            return await self._store.run(
                lambda store: store.sessions.accept(entity.id, session, policy, now), unwanted=self._release
            )

        return await self._wait_at(place, attempt, Patience(wait))

    async def renew_session(self, lock: SessionLock) -> SessionLock:
        """Renew the lock of a session. Raises `SessionLockLost`."""
        policy, now = self._policy(self._of_lock(lock)), self.clock.steady()
        return await self._store.run(lambda store: store.sessions.renew(lock, policy, now))

    async def release_session(self, lock: SessionLock) -> None:
        """Release a session and the messages that were received in it and not settled."""
        policy = self._policy(self._of_lock(lock))
        sweep = await self._store.run(lambda store: store.sessions.release(lock, policy))
        self._core.arrivals.notify(sweep.arrived)

    async def session_state(self, lock: SessionLock) -> bytes | None:
        """Return the state that receivers have stored in a session."""
        self._of_lock(lock)
        return await self._store.run(lambda store: store.sessions.state(lock.entity, lock.session))

    async def set_session_state(self, lock: SessionLock, state: bytes | None) -> None:
        """Replace the state of a locked session. Raises `SessionLockLost`."""
        self._of_lock(lock)
        now = self.clock.steady()
        await self._store.run(lambda store: store.sessions.set_state(lock, state, now))

    async def sessions(
        self, address: Address, *, updated_since: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[str]:
        """List the sessions that have messages or state, by name.

        With `updated_since`, list those whose state was set after it.
        """
        entity = addresses.holding(self.catalogue, address)
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.sessions.names(entity.id, limit, updated_since, after))

    # Helpers

    def _of_lock(self, lock: SessionLock) -> Entity:
        entity = self.catalogue.entity(lock.entity)
        if entity is None:
            raise SessionLockLost(f"Session '{lock.session}' is no longer locked: its entity was deleted.")
        self._core.accesses.note_use(entity)
        return entity

    def _put_back(self, entity: Entity, messages: Sequence[Message]) -> None:
        """Release messages whose receiver has disconnected.

        Messages that were received and deleted are lost: receive-and-delete gives no stronger guarantee.
        """
        settlements = [Settlement(Action.RELEASE, message.token) for message in messages if message.token is not None]
        if settlements:
            self._core.background.start(self.settle(Address(entity.path), settlements))

    def _release(self, lock: SessionLock | None) -> None:
        if lock is not None:
            self._core.background.start(self.release_session(lock))

    async def _wait_at(self, place: Place, attempt: Callable[[], Awaitable[T]], patience: Patience) -> T:
        """Call `attempt` now and at every arrival, until it finds something or the patience is over.

        The last attempt begins after that: something may have arrived at this very moment.
        """
        with self._core.arrivals.expected_at(place) as arrived, patience.waking(arrived):
            while True:
                arrived.clear()
                is_last = patience.is_over
                found = await attempt()
                if found or is_last:
                    return found
                await arrived.wait()

    async def _handed_out(self, entity: Entity, messages: Sequence[Message], mode: Mode, began: int) -> list[Received]:
        try:
            whole = await with_bodies(messages, self._core.bodies)
            if mode is Mode.RECEIVE_AND_DELETE:
                whole = await self._deleted(entity, whole)
            self._core.tracing.delivered([each.message for each in whole], began)
            return whole
        except asyncio.CancelledError:
            self._put_back(entity, messages)
            raise

    def _observe(self, messages: Sequence[Message]) -> None:
        """Record the latency of messages that are delivered for the first time."""
        # Stamps may be ahead of the clock; without this the latency could be negative.
        now = max(self.clock.steady(), self.clock.last)
        self.latencies.end_to_end.observe_all([now - each.enqueued for each in messages if each.deliveries == 1])

    async def _deleted(self, entity: Entity, whole: list[Received]) -> list[Received]:
        """Complete messages that were locked while their body file was read.

        Return the messages that are deleted now.
        """
        held = [each.message.token for each in whole if each.message.token is not None]
        if not held:
            return whole
        try:
            outcomes = await self.settle(Address(entity.path), [Settlement(Action.COMPLETE, token) for token in held])
        except Exception as error:
            # The other messages are deleted already: deliver them, or they would be lost.
            log.error("Cannot delete messages of entity %d, so they are not delivered: %s", entity.id, error)
            outcomes = [Outcome.MESSAGE_LOCK_LOST] * len(held)
        done = {token for token, outcome in zip(held, outcomes, strict=True) if outcome is Outcome.DONE}
        return [
            Received(each.message._replace(token=None, locked_until=None), each.body)
            for each in whole
            if each.message.token is None or each.message.token in done
        ]
