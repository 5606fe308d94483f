"""The broker: the one object that every protocol talks to. Protocols translate; what may be done is decided here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from oncebus.broker import lookup
from oncebus.broker.addresses import Address, parse_address
from oncebus.broker.clock import Clock
from oncebus.broker.core import Core
from oncebus.broker.pipeline_state import PipelineState
from oncebus.broker.received import Received, with_bodies
from oncebus.broker.refusals import Refusals
from oncebus.broker.sending import Incoming, check, check_quota, row_of, with_id
from oncebus.entities import (
    BadRequest,
    Catalogue,
    Entity,
    EntityDisabled,
    Namespace,
    NotFound,
    Queue,
    Subscription,
    Topic,
    may_send,
)
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.inbox import Row
from oncebus.messages import LARGEST_INLINE_BODY
from oncebus.store import (
    Action,
    Counts,
    Drop,
    IngestReport,
    Message,
    Mode,
    Outcome,
    Place,
    Policy,
    Quarantined,
    SessionLock,
    SessionLockLost,
    Settlement,
    Store,
    SubQueue,
)
from oncebus.store.drops import KEPT

__all__ = ["READ_YOUR_SENDS_SECONDS", "Broker", "Received"]

T = TypeVar("T")
log = logging.getLogger(__name__)

READ_YOUR_SENDS_SECONDS = 2.0
"""How long a look at an entity waits for what was accepted before it."""
DEFAULT_PIPELINE_BYTES = 4 << 30
COUNTED_AT_ONCE = 200
"""So many entities are counted before others have their turn at the store."""


class Broker:
    """Queues, topics and subscriptions. All calls are made from one event loop.

    Whatever an answer says is durable: a message accepted, a settlement done, an entity made.
    Errors are `OncebusError`s; nothing has happened then.
    """

    def __init__(self, core: Core, read_your_sends: float) -> None:
        """For `open` alone."""
        self._core = core
        self._turn = 0
        self._read_your_sends = read_your_sends
        # When `passed` was 0. Read once, so that the same use is always shown with the same time.
        self._began = core.clock.now() - core.clock.passed()
        self.pipeline = PipelineState(core)

    @classmethod
    async def open(
        cls,
        folders: Folders,
        *,
        shards: int,
        namespace: Namespace | None = None,
        most_bytes: int = DEFAULT_PIPELINE_BYTES,
        drops_kept: int = KEPT,
        read_your_sends: float = READ_YOUR_SENDS_SECONDS,
        silent_for: float = 0.0,
        clock: Clock | None = None,
    ) -> Broker:
        """Open the broker in these folders, or create one there. Nothing runs before `start`.

        `namespace` is that of a new broker. The pipeline counts as silent for `silent_for` seconds already. Raises
        `DataMismatch` if a part of the data was restored from another copy, `TimesAhead` if it has times that are yet
        to come.
        """
        # The store belongs to one thread at a time, and may change threads between calls.
        core = await asyncio.to_thread(
            Core.open, folders, shards, namespace or Namespace(), most_bytes, drops_kept, silent_for, clock
        )
        return cls(core, read_your_sends)

    def start(self) -> None:
        """Begin to ingest what the pipeline has judged, and to do the chores."""
        self._core.start()

    async def close(self) -> None:
        """Stop all work, wait for what is being made durable, and close the files. A second call only waits."""
        await self._core.close()

    @property
    def folders(self) -> Folders:
        """Where the broker keeps its data."""
        return self._core.folders

    @property
    def clock(self) -> Clock:
        """The time that the broker goes by."""
        return self._core.clock

    # Entities

    @property
    def catalogue(self) -> Catalogue:
        """All entities as they are now."""
        return self._core.catalogue

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """Change the catalogue: `how` gets it and the time, and answers the next version, or raises.

        When this returns, what is sent afterwards is accepted and routed under the new version.
        """
        return await self._core.change(how)

    def held(self, entity: Entity) -> int:
        """How many bytes count for an entity's quota: in the pipeline, and in the store a moment ago."""
        return self._core.held(entity)

    def accessed_at(self, entity: Entity) -> int:
        """When an entity was last used, in microseconds since 1970."""
        last = self._core.accesses.last(entity.id)
        return entity.accessed_at if last is None else self._began + last

    @property
    def refusals(self) -> Refusals:
        """The requests that were refused since the start."""
        return self._core.refusals

    def note_refusal(self, path: str, error: Exception) -> None:
        """Count a refused request about the entity at a path. The path may be a stranger's invention."""
        try:
            entity = self.catalogue.find(parse_address(path).path)
        except OncebusError:
            entity = None
        self.refusals.note(None if entity is None else entity.id, path, error)

    def watch(self, watcher: Callable[[IngestReport], None]) -> None:
        """Call a watcher after each entry that the store has ingested."""
        self._core.watchers.append(watcher)

    # Sending

    async def send(self, path: str, messages: Sequence[Incoming]) -> list[int]:
        """Accept messages for a queue or a topic, all or none; their sequence numbers.

        A duplicate is accepted like any other, and dropped later. A message whose time to be enqueued lies ahead is
        scheduled; its number is the one to cancel it by.
        """
        entity, size = self._check_send(path, messages)
        work = self._core.work_of(entity.id, len(messages), size)
        if not self._core.shares.has_room(entity.id, work):
            await self._core.shares.turn(entity.id, work, size)
            entity, _ = self._check_send(path, messages)
        large = [message.body for message in messages if len(message.body) > LARGEST_INLINE_BODY]
        names = await self._core.bodies.write(large) if large else []
        try:
            if large:
                # Much may have changed while they were written.
                entity, _ = self._check_send(path, messages)
            # From here to the append nothing may wait: numbers are in the order of the inbox.
            rows = self._rows_of(entity, messages, names)
            appended = self._core.append(entity.id, rows)
        except BaseException:
            self._core.bodies.discard(names)
            raise
        await appended
        return [row["sequence"] for row in rows]

    def _check_send(self, path: str, messages: Sequence[Incoming]) -> tuple[Queue | Topic, int]:
        entity = lookup.sendable(self.catalogue, path)
        if not messages:
            raise BadRequest("The batch of messages is empty.")
        size = check(entity, self._core.catalogue.namespace, messages)
        self._core.check_room(entity, size)
        check_quota(entity, self._core.held(entity), size)
        self._core.note_access(entity)
        return entity, size

    def _rows_of(self, entity: Queue | Topic, messages: Sequence[Incoming], names: Sequence[str]) -> list[Row]:
        """The rows of messages; `names` are the files of those bodies that have one, in their order."""
        complete = [with_id(message) for message in messages]
        now, numbers = self._core.clock.stamp(), self._core.numbers
        files = iter(names)
        rows = []
        for message, has_own_id in complete:
            self._turn += 1
            blob = next(files) if len(message.body) > LARGEST_INLINE_BODY else None
            rows.append(row_of(entity, message, numbers, now, self._turn, is_checked=has_own_id, blob=blob))
        return rows

    def sendable(self, path: str) -> Queue | Topic:
        """The queue or topic at a path that takes messages; else what `send` would raise."""
        entity = lookup.sendable(self.catalogue, path)
        if not may_send(entity.status):
            raise EntityDisabled(entity.path)
        return entity

    async def cancel_scheduled(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Cancel scheduled messages, an answer for each."""
        entity = lookup.sendable(self.catalogue, path)
        await self._see_sends(entity)
        return await self._core.run(lambda store: store.cancel_scheduled(entity.id, sequences))

    # Receiving

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

        return await self._handed_out(entity, await self._wait_at(place, look, wait) or [], mode)

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

    # Looking

    async def counts(self, path: str) -> Counts:
        """What an entity holds and has counted, with all that was sent before."""
        entity = lookup.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._core.run(lambda store: store.counts(entity.id))

    async def counts_now(self, entities: Sequence[int]) -> list[Counts]:
        """What entities hold just now, by their ids: does not wait for what is in the pipeline."""
        found: list[Counts] = []
        for start in range(0, len(entities), COUNTED_AT_ONCE):

            def look(store: Store, some: Sequence[int] = entities[start : start + COUNTED_AT_ONCE]) -> list[Counts]:
                return [store.counts(entity) for entity in some]

            found += await self._core.run(look)
        return found

    async def drops(
        self, path: str, *, message_id: str | None = None, since: int | None = None, limit: int = 100, after: int = 0
    ) -> list[Drop]:
        """The record of dropped duplicates of a queue or a topic."""
        entity = lookup.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._core.run(
            lambda store: store.drops(entity.id, message_id=message_id, since=since, limit=limit, after=after)
        )

    async def quarantined(self, path: str | None = None, limit: int = 100, after: int = 0) -> list[Quarantined]:
        """What could not be processed."""
        entity = lookup.found(self.catalogue, path).id if path is not None else None
        return await self._core.run(lambda store: store.quarantined(entity, limit, after))

    async def discard_quarantined(self, numbers: Sequence[int]) -> list[Outcome]:
        """Let go of quarantined messages for ever, an answer for each."""
        return await self._core.run(lambda store: store.discard_quarantined(numbers))

    async def release_quarantined(self, numbers: Sequence[int]) -> list[Outcome]:
        """Try quarantined messages again under the rules of today, past detection; an answer for each."""
        policies, now = self._core.policies, self._core.clock.steady()
        outcomes = await self._core.run(lambda store: store.release_quarantined(numbers, policies, now))
        self._core.wake_chores()
        return outcomes

    async def delete_messages(self, address: Address, enqueued_before: int, count: int) -> int:
        """Delete the oldest messages that nobody holds; how many."""
        entity = lookup.holding(self.catalogue, address)
        await self._see_sends(entity)
        return await self._core.run(
            lambda store: store.batch_delete(entity.id, enqueued_before, count, address.sub_queue)
        )

    async def resubmit(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Make dead letters new messages of their entity, past detection and behind all that was accepted before."""
        entity = lookup.holding(self.catalogue, Address(path))
        policy, now, behind = self._policy(entity), self._core.clock.stamp(), self._core.clock.behind()
        self._core.note_access(entity)
        outcomes = await self._core.run(lambda store: store.resubmit(entity.id, sequences, policy, now, behind=behind))
        self._core.arrivals.tell([Place(entity.id, SubQueue.MAIN)])
        # It is durable that they return. Who looks next should wait for them as for what was sent.
        await self._core.forward()
        return outcomes

    # What follows is for the methods above.

    def _policy(self, entity: Entity) -> Policy:
        """The policy of an entity that may have been deleted since it was found."""
        found = self._core.policies.get(entity.id)
        if found is None:
            raise NotFound(entity.path)
        return found

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

    async def _see_sends(self, entity: Entity) -> None:
        """Wait until what was accepted for an entity before can be seen."""
        await self._core.progress.wait_for(self._core.last_sent(entity), self._read_your_sends)

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
