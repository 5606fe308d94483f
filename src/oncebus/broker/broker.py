"""The broker: the one object that every protocol calls. Protocols only translate; the rules are here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from oncebus.broker import addresses
from oncebus.broker.addresses import Address
from oncebus.broker.bodies import Received
from oncebus.broker.coalescing import Coalescer
from oncebus.broker.core import Core
from oncebus.broker.receiving import Receiving
from oncebus.broker.sending import Admitted, Incoming, admit_all, stored_id, with_body_ids
from oncebus.broker.transactions import Transactions
from oncebus.engine.store import Counts, Duplicate, Forget, Outcome, Place, Purged, Store, SubQueue
from oncebus.model.entities import EntityDisabled, Queue, Topic, may_send
from oncebus.model.entities.detection_keys import BODY
from oncebus.model.messages import LARGEST_INLINE_BODY

__all__ = ["Broker", "Received"]

RECORDS_AT_ONCE = 2_000
"""The number of duplicates among which originals are looked up before other callers may use the store."""
IDS_AT_ONCE = 500
"""The number of ids for which originals are looked up before other callers may use the store."""
PURGED_AT_ONCE = 500
"""The number of messages that a purge deletes before other callers may use the store."""
PURGE_READS_AT_ONCE = 5_000
"""The number of messages, with those that stay, that a purge reads before other callers may use the store."""
MOST_PURGED = 50_000
"""The number of messages that one call of `purge` deletes at most."""


class Broker(Receiving):
    """All operations of the broker. See `BrokerBase` for the contract.

    `Receiving` has the operations for receivers, `looking` has queries for people.
    """

    def __init__(self, core: Core, read_your_sends: float) -> None:
        """Use `open` instead."""
        super().__init__(core, read_your_sends)
        self.coalescer = Coalescer(self.accept, self.send, core.background)

    # Sending

    async def send(self, path: str, messages: Sequence[Incoming]) -> list[int]:
        """Accept messages for a queue or a topic, all or none, and return their sequence numbers.

        A duplicate is accepted like any other message and dropped later. A message with a `scheduled` time in the
        future is scheduled; cancel it with its number.
        """
        began = self.clock.passed()
        entity, size = self._check_send(path, messages)
        if await self._admission.turn(entity, len(messages), size):
            entity, _ = self._check_send(path, messages)
        large = [message.body for message in messages if len(message.body) > LARGEST_INLINE_BODY]
        if large and entity.detection_key == BODY:
            messages = await self.threads.run(with_body_ids, messages)
        names = await self._core.bodies.write(large) if large else []
        try:
            if large:
                # The entity may have changed, filled up or been deleted while the bodies were written.
                entity, _ = self._check_send(path, messages)
            rows, appended = self._core.entrance.submit(admit_all(entity, messages, names))
        except BaseException:
            self._core.bodies.discard(names)
            raise
        await appended
        self.latencies.send.observe(self.clock.passed() - began)
        self._core.tracing.accepted(rows, began)
        return [row["sequence"] for row in rows]

    async def schedule(
        self, path: str, messages: Sequence[Incoming], wants_original: Collection[int] = ()
    ) -> list[int]:
        """Do the same as `send`: a message with a `scheduled` time in the future is scheduled.

        `wants_original` has positions of messages. If such a message is dropped as a duplicate, its number is replaced
        by that of its original. This waits for the verdict, as long as queries wait for sends. If the verdict does not
        come in time, the message's own number is returned.
        """
        entity = self.catalogue.find(path)
        if not wants_original or entity is None:
            return await self.send(path, messages)
        # The records of these messages come after all that are there now.
        after = (await self._store.run(lambda store: store.entities.counts(entity.id))).duplicates
        numbers = await self.send(path, messages)
        await self._see_sends(entity)
        asked = {numbers[at]: stored_id(each) for at in wants_original if (each := messages[at].message_id)}
        originals = await self._originals(entity.id, asked, after)
        return [originals.get(number, number) for number in numbers]

    async def _originals(self, entity: int, asked: Mapping[int, str], after: int) -> dict[int, int]:
        """Return those sequence numbers of `asked` that were dropped, each with that of its original.

        `asked` has the id of each. Reads only duplicates that were recorded after the duplicate `after`.
        """
        last = (await self._store.run(lambda store: store.entities.counts(entity))).duplicates
        ids = sorted(set(asked.values()))
        found: dict[int, int] = {}
        for start in range(after, last, RECORDS_AT_ONCE):
            through = min(start + RECORDS_AT_ONCE, last)
            for at in range(0, len(ids), IDS_AT_ONCE):
                some = ids[at : at + IDS_AT_ONCE]
                # Others use the store between two steps.
                dropped = await self._store.run(
                    partial(_originals, entity=entity, message_ids=some, after=start, through=through)
                )
                # The others are those of other requests.
                found |= {number: original for number, original in dropped.items() if number in asked}
        return found

    def accept(
        self, path: str, messages: Sequence[Incoming], callers: int, answered: Callable[[Exception | None], None]
    ) -> bool:
        """Begin a `send` without waiting for its end. Return False if it cannot begin at once.

        `answered` is called later, in the event loop, once the messages are durable, or with the error. If this returns
        False or raises what `send` raises, nothing has happened, and `answered` is not called.
        """
        began = self.clock.passed()
        entity, size = self._check_send(path, messages)
        if not self._admission.has_turn(entity, len(messages), size):
            return False
        if size > LARGEST_INLINE_BODY and any(len(message.body) > LARGEST_INLINE_BODY for message in messages):
            return False

        def answer(commit: int | Exception) -> None:
            if isinstance(commit, Exception):
                answered(commit)
            else:
                self.latencies.send.observe(self.clock.passed() - began, callers)
                answered(None)
                self._core.tracing.accepted(rows, began)

        rows = self._core.entrance.enter(admit_all(entity, messages), answer, callers)
        return True

    def _check_send(self, path: str, messages: Sequence[Incoming]) -> tuple[Queue | Topic, int]:
        entity, size = self._admission.check(path, messages)
        self._admission.check_room(entity, size)
        return entity, size

    def transactions(self) -> Transactions:
        """Return an object that holds the transactions of one client."""
        return Transactions(self._committer, self._see_sends)

    def sendable(self, path: str) -> Queue | Topic:
        """Return the queue or topic at a path if messages can be sent to it.

        Otherwise raises the error that `send` would raise.
        """
        entity = addresses.sendable(self.catalogue, path)
        if not may_send(entity.status):
            raise EntityDisabled(entity.path)
        return entity

    async def cancel_scheduled(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Cancel scheduled messages. Return an outcome for each."""
        entity = addresses.sendable(self.catalogue, path)
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.scheduled.cancel(entity.id, sequences))

    async def forget(
        self, path: str, message_id: str, *, session: str | None = None, partition_key: str | None = None
    ) -> Forget | None:
        """Forget an id at a queue or topic: the next message with it is new, whenever the last one was accepted.

        The forget is an event in the order of accepted messages. It is durable when this returns. `session` and
        `partition_key` matter only on a partitioned entity, where they are part of the key. Return the record of the
        forget; None if the pipeline did not process it in time.
        """
        message = Incoming(b"", b"", message_id, session, partition_key)
        entity = self._admission.check_forget(path, message)
        if await self._admission.turn(entity, 1, 0):
            entity = self._admission.check_forget(path, message)
        rows, appended = self._core.entrance.submit([Admitted(entity, message, is_checked=True, is_forget=True)])
        await appended
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.forgets.at(entity.id, rows[0]["sequence"]))

    # Queries

    async def counts(self, path: str) -> Counts:
        """Return the counts of an entity, including messages that were sent before the call."""
        entity = addresses.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.entities.counts(entity.id))

    async def duplicates(
        self, path: str, *, message_id: str | None = None, since: int | None = None, limit: int = 100, after: int = 0
    ) -> list[Duplicate]:
        """Return a page of the dropped duplicates of a queue or topic, oldest first.

        `after` is the `number` of the last duplicate on the previous page.
        """
        entity = addresses.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._store.run(
            lambda store: store.duplicates.page(entity.id, message_id=message_id, since=since, limit=limit, after=after)
        )

    async def forgets(self, path: str, limit: int = 100, after: int = 0) -> list[Forget]:
        """Return a page of the forgets of a queue or topic, oldest first. `after` is as for `duplicates`."""
        entity = addresses.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.forgets.page(entity.id, limit, after))

    async def newest_forgets(self, path: str, limit: int = 100) -> list[Forget]:
        """Return the newest forgets of a queue or topic, newest first."""
        entity = addresses.found(self.catalogue, path)
        await self._see_sends(entity)
        return await self._store.run(lambda store: store.forgets.newest(entity.id, limit))

    async def discard_dead_letters(self, address: Address, sequences: Sequence[int]) -> list[Outcome]:
        """Delete dead letters for good. Return an outcome for each."""
        entity = addresses.holding(self.catalogue, address)
        self._core.accesses.note_use(entity)
        return await self._store.run(lambda store: store.dead_letters.discard(entity.id, sequences, address.sub_queue))

    async def delete_messages(
        self, address: Address, enqueued_before: int, count: int, session: str | None = None
    ) -> int:
        """Delete up to `count` of the oldest messages that nobody has locked, and return how many.

        With `session`, only messages of that session.
        """
        entity = addresses.holding(self.catalogue, address)
        await self._see_sends(entity)
        return await self._store.run(
            lambda store: store.messages.delete_oldest(entity.id, enqueued_before, count, address.sub_queue, session)
        )

    async def purge(self, address: Address, before: int | None = None) -> Purged:
        """Delete the active messages that are there now and that nobody has locked, up to `MOST_PURGED`.

        Deferred, scheduled and locked messages stay. The ids of deleted messages stay remembered. If the result
        `has_more`, call this again with its `before`: then messages that arrive meanwhile are not deleted.
        """
        entity = addresses.holding(self.catalogue, address)
        await self._see_sends(entity)
        if before is None:
            before = self.clock.last + 1
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
        entity = addresses.holding(self.catalogue, Address(path))
        policy, now, behind = self._policy(entity), self.clock.stamp(), self.clock.behind()
        self._core.accesses.note_use(entity)
        outcomes = await self._store.run(
            lambda store: store.dead_letters.resubmit(entity.id, sequences, policy, now, behind=behind)
        )
        self._core.arrivals.notify([Place(entity.id, SubQueue.MAIN)])
        # Their return is durable already. Append them now, so that the caller's next query waits for them as for sends.
        await self._core.chores.forward()
        return outcomes


def _purge(store: Store, *, entity: int, before: int, sub_queue: SubQueue, after: int) -> tuple[int, int | None]:
    return store.messages.purge(entity, before, PURGED_AT_ONCE, sub_queue, after, PURGE_READS_AT_ONCE)


def _originals(store: Store, *, entity: int, message_ids: Sequence[str], after: int, through: int) -> dict[int, int]:
    return store.duplicates.originals(entity, message_ids, after, through)
