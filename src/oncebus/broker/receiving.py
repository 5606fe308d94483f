"""What receivers ask of the broker: to receive, settle, peek, and hold sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from oncebus.broker import lookup
from oncebus.broker.addresses import Address
from oncebus.broker.base import BrokerBase
from oncebus.broker.received import Received, with_bodies
from oncebus.entities import Entity, Queue, Subscription
from oncebus.store import Action, Message, Mode, Outcome, Place, SessionLock, SessionLockLost, Settlement, SubQueue

T = TypeVar("T")
log = logging.getLogger(__name__)


class Receiving(BrokerBase):
    """Messages for receivers and browsers."""

    async def receive(
        self,
        address: Address,
        count: int,
        *,
        mode: Mode = Mode.PEEK_LOCK,
        wait: float = 0.0,
        session: SessionLock | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Up to `count` messages, oldest first; as soon as there is one, or none after `wait` seconds.

        With `most_bytes` they are no larger together, but for a single one; so too for the other ways to read.
        """
        entity = lookup.receivable(self.catalogue, address, is_sessionful=session is not None)
        place = Place(entity.id, address.sub_queue)

        async def look() -> list[Message]:
            policy, now = self._policy(entity), self._core.clock.steady()
            self._core.note_access(entity)
            return await self._core.run(
                lambda store: store.receive(
                    entity.id, count, mode, policy, now, session, address.sub_queue, most_bytes
                ),
                unwanted=lambda messages: self._put_back(entity, messages),
            )

        found = await self._wait_at(place, look, wait) or []
        if found and address.sub_queue is SubQueue.MAIN:
            self._observe(found)
        return await self._handed_out(entity, found, mode)

    def arrivals(self, address: Address) -> AbstractContextManager[asyncio.Event]:
        """An event that is set, for the block, whenever there may be something new to receive at an address."""
        return self._core.arrivals.expected_at(Place(lookup.holding(self.catalogue, address).id, address.sub_queue))

    def receivable(self, address: Address, *, is_sessionful: bool) -> Queue | Subscription:
        """The queue or subscription that a receiver may be opened on; else what `receive` would raise."""
        return lookup.receivable(self.catalogue, address, is_sessionful=is_sessionful)

    async def receive_deferred(
        self,
        address: Address,
        sequences: Sequence[int],
        *,
        mode: Mode,
        session: SessionLock | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Deferred messages by their numbers."""
        entity = lookup.receivable(
            self.catalogue, address, is_sessionful=session is not None, is_browser=session is None
        )
        await self._see_sends(entity)
        policy, now = self._policy(entity), self._core.clock.steady()
        found = await self._core.run(
            lambda store: store.receive_deferred(
                entity.id, sequences, mode, policy, now, session, address.sub_queue, most_bytes
            ),
            unwanted=lambda messages: self._put_back(entity, messages),
        )
        return await self._handed_out(entity, found, mode)

    async def settle(
        self, address: Address, settlements: Sequence[Settlement], session: SessionLock | None = None
    ) -> list[Outcome]:
        """Settle messages that are held; an answer for each."""
        entity = lookup.holding(self.catalogue, address)
        policy, now = self._policy(entity), self._core.clock.steady()
        self._core.note_access(entity)
        outcomes = await self._core.run(
            lambda store: store.settle(entity.id, settlements, policy, now, session=session)
        )
        if any(settlement.action is not Action.COMPLETE for settlement in settlements):
            self._core.arrivals.tell([Place(entity.id, sub_queue) for sub_queue in SubQueue])
            if policy.forward_to is not None or policy.forward_dead_letters_to is not None:
                self._core.wake_chores()
        return outcomes

    async def renew_locks(self, address: Address, tokens: Sequence[bytes]) -> list[int | Outcome]:
        """Hold messages longer: until when, or why not, for each."""
        entity = lookup.holding(self.catalogue, address)
        policy, now = self._policy(entity), self._core.clock.steady()
        self._core.note_access(entity)
        return await self._core.run(lambda store: store.renew_locks(entity.id, tokens, policy, now))

    async def locked_until(
        self, address: Address, tokens: Sequence[bytes], session: SessionLock | None = None
    ) -> list[int | None]:
        """Until when messages are held, by the locks of these tokens; None for each that is held no more."""
        entity = lookup.holding(self.catalogue, address)
        now = self._core.clock.steady()
        return await self._core.run(lambda store: store.locked_until(entity.id, tokens, now, session))

    async def peek(
        self,
        address: Address,
        from_sequence: int,
        count: int,
        session: str | None = None,
        most_bytes: int | None = None,
    ) -> list[Received]:
        """Messages in any state from a number on, without holding them."""
        entity = lookup.receivable(self.catalogue, address, is_sessionful=False, is_browser=True)
        self._core.note_access(entity)
        await self._see_sends(entity)
        now = self._core.clock.steady()
        found = await self._core.run(
            lambda store: store.peek(entity.id, from_sequence, count, now, session, address.sub_queue, most_bytes)
        )
        return await with_bodies(found, self._core.bodies)

    # Sessions

    async def accept_session(self, address: Address, session: str | None, wait: float = 0.0) -> SessionLock | None:
        """Hold a session, or the next free one; None if there is none after `wait` seconds."""
        entity = lookup.receivable(self.catalogue, address, is_sessionful=True)
        place = Place(entity.id, SubQueue.MAIN)

        async def look() -> SessionLock | None:
            policy, now = self._policy(entity), self._core.clock.steady()
            self._core.note_access(entity)
            return await self._core.run(
                lambda store: store.accept_session(entity.id, session, policy, now), unwanted=self._let_go
            )

        return await self._wait_at(place, look, wait)

    async def renew_session(self, lock: SessionLock) -> SessionLock:
        """Hold a session longer."""
        policy, now = self._policy(self._of_lock(lock)), self._core.clock.steady()
        return await self._core.run(lambda store: store.renew_session(lock, policy, now))

    async def release_session(self, lock: SessionLock) -> None:
        """Let a session go, with what was received in it and not settled."""
        policy = self._policy(self._of_lock(lock))
        sweep = await self._core.run(lambda store: store.release_session(lock, policy))
        self._core.arrivals.tell(sweep.arrived)

    async def session_state(self, lock: SessionLock) -> bytes | None:
        """What the holders of a session have left in it."""
        self._of_lock(lock)
        return await self._core.run(lambda store: store.session_state(lock.entity, lock.session))

    async def set_session_state(self, lock: SessionLock, state: bytes | None) -> None:
        """Leave something in a session that is held."""
        self._of_lock(lock)
        now = self._core.clock.steady()
        await self._core.run(lambda store: store.set_session_state(lock, state, now))

    async def sessions(
        self, address: Address, *, updated_since: int | None = None, after: str | None = None, limit: int = 100
    ) -> list[str]:
        """Sessions with messages or state, by name; or those whose state was set since."""
        entity = lookup.holding(self.catalogue, address)
        await self._see_sends(entity)
        return await self._core.run(lambda store: store.list_sessions(entity.id, limit, updated_since, after))

    # What follows is for the methods above.

    def _of_lock(self, lock: SessionLock) -> Entity:
        entity = self.catalogue.entity(lock.entity)
        if entity is None:
            raise SessionLockLost(f"Session '{lock.session}' is not held any more: its entity was deleted.")
        self._core.note_access(entity)
        return entity

    def _put_back(self, entity: Entity, messages: Sequence[Message]) -> None:
        """Who asked for these is gone. What was received and deleted at once is lost to them: so it is promised."""
        settlements = [Settlement(Action.RELEASE, message.token) for message in messages if message.token is not None]
        if settlements:
            self._core.start_task(self.settle(Address(entity.path), settlements))

    def _let_go(self, lock: SessionLock | None) -> None:
        if lock is not None:
            self._core.start_task(self.release_session(lock))

    async def _wait_at(self, place: Place, look: Callable[[], Awaitable[T]], wait: float) -> T:
        """What `look` finds, looking again at every arrival until it finds something or the time is over."""
        deadline = asyncio.get_running_loop().time() + wait
        with self._core.arrivals.expected_at(place) as arrived:
            while True:
                found = await look()
                left = deadline - asyncio.get_running_loop().time()
                if found or left <= 0:
                    return found
                try:
                    async with asyncio.timeout(left):
                        await arrived.wait()
                except TimeoutError:
                    # A last look: something may have arrived in this very moment.
                    deadline = 0.0
                arrived.clear()

    async def _handed_out(self, entity: Entity, messages: Sequence[Message], mode: Mode) -> list[Received]:
        try:
            whole = await with_bodies(messages, self._core.bodies)
            return await self._deleted(entity, whole) if mode is Mode.RECEIVE_AND_DELETE else whole
        except asyncio.CancelledError:
            self._put_back(entity, messages)
            raise

    def _observe(self, messages: Sequence[Message]) -> None:
        """Note how long messages took that are handed out for the first time."""
        # No message bears a later time than the newest stamp, even while stamps are ahead of the clock.
        now = max(self.clock.steady(), self.clock.last)
        self.latencies.end_to_end.observe_all([now - each.enqueued for each in messages if each.deliveries == 1])

    async def _deleted(self, entity: Entity, whole: list[Received]) -> list[Received]:
        """What is to be received and deleted, with what had to be held until its body was read."""
        held = [each.message.token for each in whole if each.message.token is not None]
        if not held:
            return whole
        try:
            outcomes = await self.settle(Address(entity.path), [Settlement(Action.COMPLETE, token) for token in held])
        except Exception as error:
            # The others are deleted already, and must not be lost.
            log.error("Messages of entity %d could not be deleted and are not handed out: %s", entity.id, error)
            outcomes = [Outcome.MESSAGE_LOCK_LOST] * len(held)
        done = {token for token, outcome in zip(held, outcomes, strict=True) if outcome is Outcome.DONE}
        return [
            Received(each.message._replace(token=None, locked_until=None), each.body)
            for each in whole
            if each.message.token is None or each.message.token in done
        ]
