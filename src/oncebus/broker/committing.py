"""Commits a transaction atomically: after any crash, all of it has happened or none of it.

- Messages only: one append to the inbox, which makes them durable and readable together, as one commit.
- Changes of the store only (settlements, cancelled messages, states of sessions): one store transaction.
- Both: one store transaction makes the changes and keeps the messages as pending. That is the commit. Then the messages
  are appended to the inbox, in one commit of it, and the store forgets them. After a crash in between, the next broker
  appends them. A message that is appended twice has the same origin, and the store ingests each origin once.

All messages of a transaction are in one commit of the inbox, so in one micro-batch and in one entry of the outbox. The
store ingests that in one step: receivers see all of them or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from oncebus import amqp
from oncebus.broker.admission import Admission
from oncebus.broker.background import Background
from oncebus.broker.bodies import Bodies
from oncebus.broker.clock import Clock
from oncebus.broker.entrance import Entrance
from oncebus.broker.errors import ServerBusy
from oncebus.broker.pool import Pool
from oncebus.broker.sending import Admitted, Incoming, Origin, admit
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracing
from oncebus.broker.waiting import Progress
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.store import Action, Changes, Outcome, Pending
from oncebus.model.entities import NotFound, Queue, Topic
from oncebus.model.entities.detection_keys import CountedId
from oncebus.model.messages import LARGEST_INLINE_BODY, TRANSACTION
from oncebus.values.errors import NOT_READY

if TYPE_CHECKING:
    from oncebus.broker.transactions import Transaction

log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """Messages that a transaction sends to an entity in one operation.

    Each message has an id; `own` says whether the sender gave it. `numbers` has sequence numbers assigned in advance,
    if any.
    """

    path: str
    entity: int
    messages: Sequence[Incoming]
    own: Sequence[bool]
    size: int
    numbers: Sequence[int] | None = None


@dataclass(slots=True)
class Collected:
    """The operations of a transaction, and the functions to call when it is committed."""

    sent: list[Sent] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    then: list[Callable[[], None]] = field(default_factory=list)


class Committer:
    """Commits the transactions of all clients. `left` is the last pending message of an earlier broker, 0 if none."""

    def __init__(
        self,
        admission: Admission,
        clock: Clock,
        store: StoreThread,
        entrance: Entrance,
        bodies: Bodies,
        background: Background,
        wakeups: Wakeups,
        progress: Progress,
        tracing: Tracing,
        left: int,
    ) -> None:
        self.clock = clock
        self.store = store
        self.entrance = entrance
        self._bodies = bodies
        self._background = background
        self._wakeups = wakeups
        self._progress = progress
        self._tracing = tracing
        self.admission = admission
        self.entities = admission.entities
        # The transactions that have begun to work, in that order, and the memory for their operations.
        self.working: dict[Transaction, None] = {}
        self.memory = Pool()
        # The transaction that settles a message, by lock token. Until it ends, nobody else can.
        self.enlisted: dict[bytes, Transaction] = {}
        self._left = left
        self._resumed = 0
        # Committed messages that could not be appended yet, by transaction, and (messages, commit) that are in the
        # inbox and not yet reported to the store.
        self._unappended: deque[Sequence[Pending]] = deque()
        self._unreported: deque[tuple[Sequence[Pending], int]] = deque()

    @property
    def held(self) -> int:
        """Return the bytes that all transactions hold."""
        return self.memory.held

    async def commit(self, collected: Collected) -> None:
        """Commit a transaction. When this returns it is durable; if it raises, nothing of it happens."""
        # A commit that the caller cancels half way could not be finished.
        await self._background.finish(self._commit(collected))

    async def _commit(self, collected: Collected) -> None:
        sent, changes = collected.sent, collected.changes
        if not sent and not changes:
            return
        await self._admit(sent)
        if sent and changes and self._unappended:
            # Messages of earlier transactions cannot be appended: accepting more would fill the store without a bound.
            raise ServerBusy(NOT_READY)
        bodies = [each.body for one in sent for each in one.messages if len(each.body) > LARGEST_INLINE_BODY]
        names = await self._bodies.write(bodies) if bodies else []
        try:
            admitted = self._admitted(sent, names)
            appended: Awaitable[object] = (
                self._append_or_retry(await self._commit_changes(changes, admitted))
                if changes
                else self._enter(admitted)
            )
        except BaseException:
            self._bodies.discard(names)
            raise
        await appended

    async def step(self) -> bool:
        """Roll back transactions that take too long, and append messages that are left over.

        Return whether there is more to do.
        """
        now = self.clock.passed()
        while (first := next(iter(self.working), None)) is not None and first.is_late(now):
            first.time_out()
        while self._unappended:
            await self._append(self._unappended[0])
            self._unappended.popleft()
        while self._unreported:
            await self._report(*self._unreported[0])
            self._unreported.popleft()
        return await self._resume() if self._left else False

    async def _admit(self, sent: Sequence[Sent]) -> None:
        """Check all messages, and wait for the turn of each entity that has to wait."""
        entities, counts = self._checked(sent)
        for entity in entities.values():
            await self.admission.turn(entity, *counts[entity.id])

    def _checked(self, sent: Sequence[Sent]) -> tuple[dict[int, Queue | Topic], dict[int, tuple[int, int]]]:
        """Return the entities, and for each the number and the size of its messages. Raises unless all have room."""
        entities: dict[int, Queue | Topic] = {}
        counts: dict[int, tuple[int, int]] = {}
        for one in sent:
            entity, _ = self.admission.check(one.path, one.messages)
            if entity.id != one.entity:
                # Deleted and created again: the client sent to the one before.
                raise NotFound(one.path)
            number, size = counts.get(entity.id, (0, 0))
            entities[entity.id], counts[entity.id] = entity, (number + len(one.messages), size + one.size)
        for entity in entities.values():
            self.admission.check_room(entity, counts[entity.id][1])
        return entities, counts

    def _admitted(self, sent: Sequence[Sent], names: Sequence[str]) -> list[Admitted]:
        # Once more: an entity may have changed, filled up or been deleted since.
        entities, _ = self._checked(sent)
        files = iter(names)
        return [
            admit(
                entities[one.entity],
                message,
                next(files) if len(message.body) > LARGEST_INLINE_BODY else None,
                one.own[at],
            )._replace(sequence=None if one.numbers is None else one.numbers[at])
            for one in sent
            for at, message in enumerate(one.messages)
        ]

    def _enter(self, admitted: Sequence[Admitted]) -> asyncio.Future[int]:
        """Append messages. The future resolves to their commit."""
        began = self.clock.passed()
        rows, durable = self.entrance.submit(admitted)
        durable.add_done_callback(
            lambda done: None if done.cancelled() or done.exception() else self._tracing.accepted(rows, began)
        )
        return durable

    async def _commit_changes(self, changes: Changes, admitted: Sequence[Admitted]) -> list[Pending]:
        """Make the changes and keep the messages, in one store transaction."""
        if admitted:
            # Raises while the clock is wrong: the messages could not be stamped.
            self.clock.stamp()
        sent = [_pending(each) for each in admitted]
        for each in sent:
            # After the commit it would be too late to find that a message cannot be read.
            _incoming(each)
        policies, now, began = self.entities.catalogues.policies, self.clock.steady(), self.clock.passed()
        pending = await self.store.run(lambda store: store.pending.commit(changes, sent, policies, now))
        settlements = [settlement for _, settlement, _ in changes.settlements]
        self._tracing.settled(settlements, [Outcome.DONE] * len(settlements), began)
        put_back = {entity for entity, each, _ in changes.settlements if each.action is not Action.COMPLETE}
        for entity in put_back:
            self._wakeups.note_settled(entity)
        return pending

    async def _append_or_retry(self, pending: Sequence[Pending]) -> None:
        """Append committed messages. If that fails now, the chores retry: the transaction is committed anyway."""
        if not pending:
            return
        if self._unappended:
            # Those that were committed earlier come first.
            self._unappended.append(pending)
            return
        try:
            await self._append(pending)
        except Exception as error:
            # Whatever it is, the client must not hear that the transaction was rolled back.
            log.warning("The messages of a committed transaction are not in the inbox yet: %s", error)
            self._unappended.append(pending)

    async def _append(self, pending: Sequence[Pending]) -> None:
        body_ids = await self._bodies.ids(
            [
                each.body_file
                for each in pending
                if each.body_file and self.entities.catalogues.counts_bodies(each.entity)
            ]
        )
        admitted = self._admit_pending(pending, body_ids)
        commit = await self._enter(admitted) if admitted else self.entrance.acceptor.last_commit
        # Nobody has to wait until the store knows.
        self._background.start(self._report_or_retry(pending, commit))

    async def _report_or_retry(self, pending: Sequence[Pending], commit: int) -> None:
        try:
            await self._report(pending, commit)
        except Exception:
            self._unreported.append((pending, commit))
            raise

    async def _report(self, pending: Sequence[Pending], commit: int) -> None:
        """Tell the store which messages have been appended. Until then, the next broker would append them again."""
        await self.store.run(lambda store: store.pending.end(pending, commit))

    def _admit_pending(self, pending: Sequence[Pending], body_ids: Mapping[str, CountedId]) -> list[Admitted]:
        admitted: list[Admitted] = []
        for each in pending:
            entity = self.entities.catalogue.entity(each.entity)
            if isinstance(entity, Queue | Topic):
                # An entity that was deleted since leaves nothing.
                message = _incoming(each)._replace(body_id=body_ids.get(each.body_file or ""))
                one = admit(entity, message, each.body_file, bool(each.is_checked))
                admitted.append(one._replace(sequence=each.sequence, origin=Origin(TRANSACTION, each.number)))
        return admitted

    async def _resume(self) -> bool:
        """Append messages that an earlier broker committed but did not append. Return whether there is more to do."""
        left, resumed = self._left, self._resumed
        if not self._progress.has_recovered:
            # It may have appended messages without reporting them. Once the store has ingested them, it knows them.
            return False
        appended = self.entrance.acceptor.last_commit
        pending = await self.store.run(lambda store: store.pending.next(resumed, left, appended))
        if not pending:
            self._left = 0
            return False
        await self._append(pending)
        self._resumed = pending[-1].number
        return True


def _pending(admitted: Admitted) -> Pending:
    message, identity = admitted.message, admitted.message.message_id
    assert identity is not None
    return Pending(
        number=0,
        committed=0,
        entity=admitted.entity.id,
        sequence=admitted.sequence,
        is_checked=int(admitted.is_checked),
        message_id=identity if isinstance(identity, str) else identity.hex(),
        session=message.session,
        partition_key=message.partition_key,
        scheduled=message.scheduled,
        ttl=message.ttl,
        size=message.size,
        head=message.head,
        body=None if admitted.body_file else message.body,
        body_file=admitted.body_file,
    )


def _incoming(pending: Pending) -> Incoming:
    # The head has the id as its sender gave it: a binary id differs from its text.
    given = amqp.message_id(pending.head)
    return Incoming(
        pending.head,
        pending.body or b"",
        pending.message_id if given is None else amqp.id_text(given),
        pending.session,
        pending.partition_key,
        pending.scheduled,
        pending.ttl,
        body_in_file=pending.size - len(pending.head) if pending.body_file is not None else 0,
    )
