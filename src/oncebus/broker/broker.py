"""The broker: the one object that every protocol talks to. Protocols translate; what may be done is decided here."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.broker import lookup
from oncebus.broker.addresses import Address
from oncebus.broker.received import Received
from oncebus.broker.receiving import Receiving
from oncebus.broker.sending import Incoming, check, check_quota, row_of, with_id
from oncebus.entities import BadRequest, EntityDisabled, Queue, Topic, may_send
from oncebus.inbox import Row
from oncebus.messages import LARGEST_INLINE_BODY
from oncebus.store import Counts, Duplicate, Outcome, Place, Quarantined, SubQueue

__all__ = ["Broker", "Received"]


class Broker(Receiving):
    """Everything that can be asked of the broker. See `BrokerBase` for its contract, `Receiving` for receivers."""

    # Sending

    async def send(self, path: str, messages: Sequence[Incoming]) -> list[int]:
        """Accept messages for a queue or a topic, all or none; their sequence numbers.

        A duplicate is accepted like any other, and dropped later. A message whose time to be enqueued lies ahead is
        scheduled; its number is the one to cancel it by.
        """
        began = self.clock.passed()
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
        self.latencies.send.observe(self.clock.passed() - began)
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
            file = next(files) if len(message.body) > LARGEST_INLINE_BODY else None
            rows.append(row_of(entity, message, numbers, now, self._turn, is_checked=has_own_id, body_file=file))
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

    # Looking

    async def counts(self, path: str) -> Counts:
        """What an entity holds and has counted, with all that was sent before."""
        entity = lookup.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._core.run(lambda store: store.counts(entity.id))

    async def duplicates(
        self, path: str, *, message_id: str | None = None, since: int | None = None, limit: int = 100, after: int = 0
    ) -> list[Duplicate]:
        """The record of dropped duplicates of a queue or a topic."""
        entity = lookup.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._core.run(
            lambda store: store.duplicates(entity.id, message_id=message_id, since=since, limit=limit, after=after)
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
