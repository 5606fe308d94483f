"""The operations of receivers: receive, settle and peek."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.background import Background
from oncebus.broker.bodies import Bodies, Received, with_bodies
from oncebus.broker.clock import Clock
from oncebus.broker.committing import Committer
from oncebus.broker.dispatching import Dispatcher, Dispatchers, wait_at
from oncebus.broker.entities import Entities
from oncebus.broker.latencies import Latency
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracing
from oncebus.broker.waiting import Arrivals, Patience
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.store import (
    Action,
    Message,
    Mode,
    Outcome,
    Place,
    SessionLock,
    Settlement,
    SubQueue,
)
from oncebus.model.entities import Entity, NotFound, Queue, Subscription
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)


MESSAGES_AT_ONCE = 500
BYTES_AT_ONCE = 8 << 20
"""The most that one look of a dispatcher reads. A single message may be larger."""
_TYPICAL_BYTES = 64 << 10


class Receivers:
    """Delivers messages to receivers, settles them, and shows them to browsers. `latency` observes deliveries."""

    def __init__(
        self,
        entities: Entities,
        clock: Clock,
        store: StoreThread,
        bodies: Bodies,
        arrivals: Arrivals,
        background: Background,
        committer: Committer,
        wakeups: Wakeups,
        tracing: Tracing,
        latency: Latency,
    ) -> None:
        self._entities = entities
        self._clock = clock
        self._store = store
        self._bodies = bodies
        self._arrivals = arrivals
        self._background = background
        self._committer = committer
        self._wakeups = wakeups
        self._tracing = tracing
        self._latency = latency
        self._dispatchers = Dispatchers[Received](arrivals)

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
        entity = addresses.receivable(self._entities.catalogue, address, is_sessionful=session is not None)
        patience = wait if isinstance(wait, Patience) else Patience(wait)
        if patience.is_over:
            return await self.receive_now(entity, address, count, mode, session)
        self._entities.note_receiver(entity, address.sub_queue)
        if session is None:
            dispatcher = self.dispatcher(entity.id, address, mode)
        else:
            dispatcher = self.session_dispatcher(address, mode, lambda: session)
        return await wait_at(dispatcher, count, patience, self._background)

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
        began = self._clock.passed()
        policy, now = self._entities.policy(entity), self._clock.steady()
        self._entities.note_receiver(entity, address.sub_queue)
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
        return self._dispatchers.find((*place, mode), place, lambda: self._source(entity, address, mode))

    def session_dispatcher(
        self, address: Address, mode: Mode, session: Callable[[], SessionLock]
    ) -> Dispatcher[Received]:
        """Return a dispatcher for the one receiver that holds a session. `session` returns the lock as it is then."""
        entity = session().entity
        source = self._source(entity, address, mode, session)
        return Dispatcher(self._arrivals, Place(entity, address.sub_queue), source)

    def _source(
        self, entity: int, address: Address, mode: Mode, session: Callable[[], SessionLock] | None = None
    ) -> _Messages:
        catalogue = self._entities.catalogue
        return _Messages(self, entity, address, mode, catalogue.largest_message(catalogue.entity(entity)), session)

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
        return addresses.receivable(self._entities.catalogue, address, is_sessionful=is_sessionful)

    def browsable(self, address: Address) -> Queue | Subscription:
        """Return the queue or subscription at an address. Raises the errors that `peek` would raise."""
        return addresses.receivable(self._entities.catalogue, address, is_sessionful=False, is_browser=True)

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
            self._entities.catalogue, address, is_sessionful=session is not None, is_browser=session is None
        )
        await self._entities.see_sends(entity)
        policy, now, began = self._entities.policy(entity), self._clock.steady(), self._clock.passed()
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
        entity = self._entities.use(address)
        policy, now, began = self._entities.policy(entity), self._clock.steady(), self._clock.passed()
        enlisted = self._committer.enlisted
        taken = {each.token for each in settlements if each.token in enlisted} if enlisted else set()
        free = [each for each in settlements if each.token not in taken] if taken else settlements
        outcomes = await self._store.run(
            lambda store: store.locks.settle(entity.id, free, policy, now, session=session)
        )
        if taken:
            done = iter(outcomes)
            outcomes = [Outcome.IN_TRANSACTION if each.token in taken else next(done) for each in settlements]
        self._tracing.settled(settlements, outcomes, began)
        if any(settlement.action is not Action.COMPLETE for settlement in settlements):
            self._wakeups.note_settled(entity.id)
        return outcomes

    def when_rolled_back(self, token: bytes, then: Callable[[], object]) -> None:
        """Call `then` if the transaction that settles the message with a lock token is rolled back; now if none does.

        Of several calls for a token, the last one counts.
        """
        transaction = self._committer.enlisted.get(token)
        if transaction is None:
            then()
        else:
            transaction.when_rolled_back(then, token)

    async def renew_locks(self, address: Address, tokens: Sequence[bytes]) -> list[int | Outcome]:
        """Renew the locks of messages. Return the new end of each lock, or why it cannot be renewed."""
        entity = self._entities.use(address)
        policy, now = self._entities.policy(entity), self._clock.steady()
        return await self._store.run(lambda store: store.locks.renew(entity.id, tokens, policy, now))

    async def locked_until(
        self, address: Address, tokens: Sequence[bytes], session: SessionLock | None = None
    ) -> list[int | None]:
        """Return when the locks with these tokens expire; None for each that is lost."""
        entity = addresses.holding(self._entities.catalogue, address)
        now = self._clock.steady()
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
        self._entities.note_use(entity)
        await self._entities.see_sends(entity)
        now = self._clock.steady()
        found = await self._store.run(
            lambda store: store.messages.peek(
                entity.id, from_sequence, count, now, session, address.sub_queue, most_bytes
            )
        )
        return await with_bodies(found, self._bodies)

    def _put_back(self, entity: Entity, messages: Sequence[Message]) -> None:
        """Release messages whose receiver has disconnected.

        Messages that were received and deleted are lost: receive-and-delete gives no stronger guarantee.
        """
        tokens = [message.token for message in messages if message.token is not None]
        if tokens:
            self._background.start(self.release(Address(entity.path), tokens))

    async def _hand_out(self, entity: Entity, messages: Sequence[Message], mode: Mode, began: int) -> list[Received]:
        try:
            whole = await with_bodies(messages, self._bodies)
            if mode is Mode.RECEIVE_AND_DELETE:
                whole = await self._complete_deleted(entity, whole)
            self._tracing.delivered([each.message for each in whole], began)
            return whole
        except asyncio.CancelledError:
            self._put_back(entity, messages)
            raise

    def _observe(self, messages: Sequence[Message]) -> None:
        """Record the latency of messages that are delivered for the first time."""
        # Stamps may be ahead of the clock; without this the latency could be negative.
        now = max(self._clock.steady(), self._clock.last)
        self._latency.observe_all([now - each.enqueued for each in messages if each.deliveries == 1])

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
        receivers: Receivers,
        entity: int,
        address: Address,
        mode: Mode,
        largest: int,
        session: Callable[[], SessionLock] | None = None,
    ) -> None:
        self._receivers = receivers
        self._entity = entity
        self._address = address
        self._mode = mode
        self._session = session
        self.deletes = mode is Mode.RECEIVE_AND_DELETE
        self._typical = max(_TYPICAL_BYTES, largest // 8)

    @property
    def most(self) -> int:
        """See `Source`."""
        return max(1, min(MESSAGES_AT_ONCE, BYTES_AT_ONCE // self._typical))

    async def look(self, wanted: int) -> list[Received]:
        """See `Source`."""
        session = None if self._session is None else self._session()
        entity = self._receivers.receivable(self._address, is_sessionful=session is not None)
        if entity.id != self._entity:
            raise NotFound(self._address.path)
        found = await self._receivers.receive_now(entity, self._address, wanted, self._mode, session, BYTES_AT_ONCE)
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
        await self._receivers.release(self._address, tokens)
