"""The operations of senders: send, schedule, cancel, forget an id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from oncebus.broker import addresses
from oncebus.broker.admission import Admission
from oncebus.broker.bodies import Bodies
from oncebus.broker.clock import Clock
from oncebus.broker.entrance import Entrance
from oncebus.broker.latencies import Latency
from oncebus.broker.sending import Admitted, Incoming, admit_all, stored_id, with_body_ids
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracing
from oncebus.engine.store import Forget, Outcome, Store
from oncebus.model.entities import EntityDisabled, Queue, Topic, may_send
from oncebus.model.entities.detection_keys import BODY
from oncebus.model.messages import LARGEST_INLINE_BODY
from oncebus.values.threads import Threads

RECORDS_AT_ONCE = 2_000
"""The number of duplicates among which originals are looked up before other callers may use the store."""
IDS_AT_ONCE = 500
"""The number of ids for which originals are looked up before other callers may use the store."""


class Senders:
    """Accepts messages for queues and topics. `latency` observes sends."""

    def __init__(
        self,
        admission: Admission,
        entrance: Entrance,
        bodies: Bodies,
        store: StoreThread,
        clock: Clock,
        tracing: Tracing,
        latency: Latency,
        threads: Threads,
    ) -> None:
        self._entities = admission.entities
        self._admission = admission
        self._entrance = entrance
        self._bodies = bodies
        self._store = store
        self._clock = clock
        self._tracing = tracing
        self._latency = latency
        self._threads = threads

    async def send(self, path: str, messages: Sequence[Incoming]) -> list[int]:
        """Accept messages for a queue or a topic, all or none, and return their sequence numbers.

        A duplicate is accepted like any other message and dropped later. A message with a `scheduled` time in the
        future is scheduled; cancel it with its number.
        """
        began = self._clock.passed()
        entity, size = self._check_send(path, messages)
        if await self._admission.turn(entity, len(messages), size):
            entity, _ = self._check_send(path, messages)
        large = [message.body for message in messages if len(message.body) > LARGEST_INLINE_BODY]
        if large and entity.detection_key == BODY:
            messages = await self._threads.run(with_body_ids, messages)
        names = await self._bodies.write(large) if large else []
        try:
            if large:
                # The entity may have changed, filled up or been deleted while the bodies were written.
                entity, _ = self._check_send(path, messages)
            rows, appended = self._entrance.submit(admit_all(entity, messages, names))
        except BaseException:
            self._bodies.discard(names)
            raise
        await appended
        self._latency.observe(self._clock.passed() - began)
        self._tracing.accepted(rows, began)
        return [row["sequence"] for row in rows]

    async def schedule(
        self, path: str, messages: Sequence[Incoming], wants_original: Collection[int] = ()
    ) -> list[int]:
        """Do the same as `send`: a message with a `scheduled` time in the future is scheduled.

        `wants_original` has positions of messages. If such a message is dropped as a duplicate, its number is replaced
        by that of its original. This waits for the verdict, as long as queries wait for sends. If the verdict does not
        come in time, the message's own number is returned.
        """
        entity = self._entities.catalogue.find(path)
        if not wants_original or entity is None:
            return await self.send(path, messages)
        # The records of these messages come after all that are there now.
        after = (await self._store.run(lambda store: store.entities.counts(entity.id))).duplicates
        numbers = await self.send(path, messages)
        await self._entities.see_sends(entity)
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
        began = self._clock.passed()
        entity, size = self._check_send(path, messages)
        if not self._admission.has_turn(entity, len(messages), size):
            return False
        if size > LARGEST_INLINE_BODY and any(len(message.body) > LARGEST_INLINE_BODY for message in messages):
            return False

        def answer(commit: int | Exception) -> None:
            if isinstance(commit, Exception):
                answered(commit)
            else:
                self._latency.observe(self._clock.passed() - began, callers)
                answered(None)
                self._tracing.accepted(rows, began)

        rows = self._entrance.enter(admit_all(entity, messages), answer, callers)
        return True

    def _check_send(self, path: str, messages: Sequence[Incoming]) -> tuple[Queue | Topic, int]:
        entity, size = self._admission.check(path, messages)
        self._admission.check_room(entity, size)
        return entity, size

    def sendable(self, path: str) -> Queue | Topic:
        """Return the queue or topic at a path if messages can be sent to it.

        Otherwise raises the error that `send` would raise.
        """
        entity = addresses.sendable(self._entities.catalogue, path)
        if not may_send(entity.status):
            raise EntityDisabled(entity.path)
        return entity

    async def cancel_scheduled(self, path: str, sequences: Sequence[int]) -> list[Outcome]:
        """Cancel scheduled messages. Return an outcome for each."""
        entity = addresses.sendable(self._entities.catalogue, path)
        await self._entities.see_sends(entity)
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
        rows, appended = self._entrance.submit([Admitted(entity, message, is_checked=True, is_forget=True)])
        await appended
        await self._entities.see_sends(entity)
        return await self._store.run(lambda store: store.forgets.at(entity.id, rows[0]["sequence"]))


def _originals(store: Store, *, entity: int, message_ids: Sequence[str], after: int, through: int) -> dict[int, int]:
    return store.duplicates.originals(entity, message_ids, after, through)
