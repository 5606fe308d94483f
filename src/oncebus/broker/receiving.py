"""The operations of receivers: receive, settle, peek, and lock sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.base import BrokerBase
from oncebus.broker.bodies import Received, with_bodies
from oncebus.broker.core import Core
from oncebus.broker.dispatching import Call, Dispatcher, Dispatchers
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
from oncebus.model.entities import Entity, NotFound, Queue, Subscription
from oncebus.values.errors import OncebusError

T = TypeVar("T")
log = logging.getLogger(__name__)


MESSAGES_AT_ONCE = 500
BYTES_AT_ONCE = 8 << 20
"""The most that one look of a dispatcher reads. A single message may be larger."""
_TYPICAL_BYTES = 64 << 10


class Receiving(BrokerBase):
    """Operations for receivers and browsers."""

    def __init__(self, core: Core, read_your_sends: float) -> None:
        """Use `open` instead."""
        super().__init__(core, read_your_sends)
        self._dispatchers = Dispatchers[Received](core.arrivals)
        self._session_dispatchers = Dispatchers[SessionLock](core.arrivals)

    async def receive(
        self,
        address: Address,
        count: int,
        *,
        mode: Mode = Mode.PEEK_LOCK,
        wait: float | Patience = 0.0,
        session: SessionLock | None = None,
    ) -> list[Received]:
        """Receive up to `count` messages, oldest first.

        Waits up to `wait` seconds for the first one; returns none after that. A caller that may have to stop waiting
        passes a `Patience`: if it cancels the call instead, messages that were deleted for it are lost.
        """
        entity = addresses.receivable(self.catalogue, address, is_sessionful=session is not None)
        patience = wait if isinstance(wait, Patience) else Patience(wait)
        if patience.is_over:
            return await self.receive_now(entity, address, count, mode, session)
        self._note_receiver(entity, address.sub_queue)
        if session is None:
            dispatcher = self.dispatcher(entity.id, address, mode)
        else:
            dispatcher = self.session_dispatcher(address, mode, lambda: session)
        return await self._wait_at(dispatcher, count, patience)

    async def receive_now(
        self,
        entity: Entity,
        address: Address,
        count: int,
        mode: Mode,
        session: SessionLock | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Receive what is there now.

        `most_bytes` limits the total size, but a single message may exceed it. The same holds for `receive_deferred`
        and `peek`.
        """
        began = self.clock.passed()
        policy, now = self._policy(entity), self.clock.steady()
        self._note_receiver(entity, address.sub_queue)
        found = await self._store.run(
            lambda store: store.messages.receive(
                entity.id, count, mode, policy, now, session, address.sub_queue, most_bytes
            ),
            unwanted=lambda messages: self._put_back(entity, messages),
        )
        if found and address.sub_queue is SubQueue.MAIN:
            self._observe(found)
        return await self._hand_out(entity, found, mode, began)

    @property
    def waiters(self) -> int:
        """Return how many receivers wait for messages, apart from those of sessions."""
        return self._dispatchers.waiters

    def dispatcher(self, entity: int, address: Address, mode: Mode) -> Dispatcher[Received]:
        """Return the dispatcher that deals the messages of an entity, to join it at once."""
        place = Place(entity, address.sub_queue)
        return self._dispatchers.find((*place, mode), place, lambda: _Messages(self, entity, address, mode))

    def session_dispatcher(
        self, address: Address, mode: Mode, session: Callable[[], SessionLock]
    ) -> Dispatcher[Received]:
        """Return a dispatcher for the one receiver that holds a session. `session` returns the lock as it is then."""
        entity = session().entity
        source = _Messages(self, entity, address, mode, session)
        return Dispatcher(self._core.arrivals, Place(entity, address.sub_queue), source)

    async def release(self, address: Address, tokens: Sequence[bytes]) -> None:
        """Release the messages with these lock tokens, which no client has seen. The delivery attempt does not count.

        Errors are only logged, because the locks expire anyway.
        """
        if not tokens:
            return
        try:
            await self.settle(address, [Settlement(Action.RELEASE, token) for token in tokens])
        except OncebusError as error:
            log.info(
                "%d messages could not be released and stay locked until their locks expire: %s", len(tokens), error
            )

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
        return await self._hand_out(entity, found, mode, began)

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
            self._core.wakeups.note_settled(entity.id)
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
        if session is not None or wait <= 0:
            # A session that is named is free or taken, and nobody waits for it.
            return await self.lock_session(entity, session)
        self._note_receiver(entity, SubQueue.MAIN)
        place = Place(entity.id, SubQueue.MAIN)
        dispatcher = self._session_dispatchers.find(entity.id, place, lambda: _FreeSessions(self, entity))
        locks = await self._wait_at(dispatcher, 1, Patience(wait))
        return locks[0] if locks else None

    async def lock_session(self, entity: Entity, session: str | None) -> SessionLock | None:
        """Lock a session, or the next free one if `session` is None. Return None if none is free now."""
        policy, now = self._policy(entity), self.clock.steady()
        self._note_receiver(entity, SubQueue.MAIN)
        return await self._store.run(
            lambda store: store.sessions.accept(entity.id, session, policy, now), unwanted=self._release
        )

    async def renew_session(self, lock: SessionLock) -> SessionLock:
        """Renew the lock of a session. Raises `SessionLockLost`."""
        policy, now = self._policy(self._of_lock(lock)), self.clock.steady()
        return await self._store.run(lambda store: store.sessions.renew(lock, policy, now))

    async def release_session(self, lock: SessionLock) -> None:
        """Release a session and the messages that were received in it and not settled."""
        policy = self._policy(self._of_lock(lock))
        await self._store.run(lambda store: store.sessions.release(lock, policy))

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

    def _note_receiver(self, entity: Entity, sub_queue: SubQueue) -> None:
        self._core.accesses.note_use(entity)
        if sub_queue is SubQueue.MAIN:
            self.consumers.note(entity.id)

    def _put_back(self, entity: Entity, messages: Sequence[Message]) -> None:
        """Release messages whose receiver has disconnected.

        Messages that were received and deleted are lost: receive-and-delete gives no stronger guarantee.
        """
        tokens = [message.token for message in messages if message.token is not None]
        if tokens:
            self._core.background.start(self.release(Address(entity.path), tokens))

    def _release(self, lock: SessionLock | None) -> None:
        if lock is not None:
            self._core.background.start(self.release_session(lock))

    async def _wait_at(self, dispatcher: Dispatcher[T], count: int, patience: Patience) -> list[T]:
        call = Call[T](count)
        try:
            return await call.wait(dispatcher, patience)
        except asyncio.CancelledError:
            if call.items:
                self._core.background.start(dispatcher.source.put_back(call.items))
            raise

    async def _hand_out(self, entity: Entity, messages: Sequence[Message], mode: Mode, began: int) -> list[Received]:
        try:
            whole = await with_bodies(messages, self._core.bodies)
            if mode is Mode.RECEIVE_AND_DELETE:
                whole = await self._complete_deleted(entity, whole)
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

    async def _complete_deleted(self, entity: Entity, whole: list[Received]) -> list[Received]:
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


class _Messages:
    """The messages of one entity, for a dispatcher. `session` returns the lock of the session that they belong to.

    Estimates how many messages fit in memory, from the size of earlier ones. A hard limit on their total size holds in
    case they are larger than that.
    """

    def __init__(
        self,
        broker: Receiving,
        entity: int,
        address: Address,
        mode: Mode,
        session: Callable[[], SessionLock] | None = None,
    ) -> None:
        self._broker = broker
        self._entity = entity
        self._address = address
        self._mode = mode
        self._session = session
        self.deletes = mode is Mode.RECEIVE_AND_DELETE
        catalogue = broker.catalogue
        self._typical = max(_TYPICAL_BYTES, catalogue.largest_message(catalogue.entity(entity)) // 8)

    @property
    def most(self) -> int:
        """See `Source`."""
        return max(1, min(MESSAGES_AT_ONCE, BYTES_AT_ONCE // self._typical))

    async def look(self, wanted: int) -> list[Received]:
        """See `Source`."""
        session = None if self._session is None else self._session()
        entity = self._broker.receivable(self._address, is_sessionful=session is not None)
        if entity.id != self._entity:
            raise NotFound(self._address.path)
        found = await self._broker.receive_now(entity, self._address, wanted, self._mode, session, BYTES_AT_ONCE)
        if found:
            size = sum(len(each.body) + len(each.message.head) for each in found) // len(found)
            self._typical = max(size, (self._typical + size) // 2, 1)
        return found

    async def put_back(self, items: Sequence[Received]) -> None:
        """See `Source`."""
        tokens = [each.message.token for each in items if each.message.token is not None]
        if len(tokens) < len(items):
            lost, path = len(items) - len(tokens), self._address.path
            log.warning("%d messages were received and deleted from '%s' after their receiver left", lost, path)
        await self._broker.release(self._address, tokens)


class _FreeSessions:
    """The free sessions of one entity, for a dispatcher."""

    most = 1
    deletes = False

    def __init__(self, broker: Receiving, entity: Entity) -> None:
        self._broker = broker
        self._entity = entity

    async def look(self, wanted: int) -> list[SessionLock]:  # noqa: ARG002
        """See `Source`."""
        lock = await self._broker.lock_session(self._entity, None)
        return [] if lock is None else [lock]

    async def put_back(self, items: Sequence[SessionLock]) -> None:
        """See `Source`."""
        for lock in items:
            try:
                await self._broker.release_session(lock)
            except OncebusError as error:
                log.info("A session could not be released and stays locked until its lock expires: %s", error)
