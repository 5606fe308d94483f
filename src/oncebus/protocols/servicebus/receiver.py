"""A client's receiver: sends messages of an entity to the client, and settles them as the client decides."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from oncebus.amqp.events import Disposed
from oncebus.amqp.outcomes import Declared, DeliveryState, ReceivedState, Rejected, TransactionalState
from oncebus.amqp.outgoing import OutgoingDelivery, OutgoingLink
from oncebus.amqp.performatives import SETTLED
from oncebus.broker.broker import Received
from oncebus.broker.dispatching import Dispatcher
from oncebus.broker.transactions import UnknownTransaction, Work
from oncebus.engine.store import Action, Mode, Outcome, SessionLock, Settlement, SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import Queue, Subscription
from oncebus.protocols.servicebus.attached import EntityLink, LinkConnection
from oncebus.protocols.servicebus.dispositions import answer_to, settlements_of
from oncebus.protocols.servicebus.errors import AmqpRefused, refusal_of_outcome
from oncebus.protocols.servicebus.messages import tag_of
from oncebus.protocols.servicebus.nodes import Node
from oncebus.protocols.servicebus.transactions import work_of
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)


class _Decision(NamedTuple):
    """The client's decision on deliveries, and the request that it is in if it belongs to a transaction."""

    deliveries: Sequence[OutgoingDelivery]
    state: DeliveryState | None
    is_settled: bool
    work: Work | None


class Receiver(EntityLink[OutgoingLink, Queue | Subscription]):
    """Sends messages while there is credit.

    A message that is unsettled when the link ends stays locked until its lock expires, as in the service: the client
    may still settle it by its lock token. A message that the client cannot have received is released.
    """

    operation = Operation.RECEIVE
    is_sessionful = False

    def __init__(self, client: LinkConnection, link: OutgoingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self.mode = Mode.RECEIVE_AND_DELETE if link.attach.snd_settle_mode == SETTLED else Mode.PEEK_LOCK
        self._dispatcher: Dispatcher[Received] | None = None
        self._is_consumer = False
        self._decisions: list[_Decision] = []
        self._settling: asyncio.Task[None] | None = None
        self._awaited: list[asyncio.Future[None]] = []
        self._returning: asyncio.Task[None] | None = None
        self._lapsing: asyncio.Task[None] | None = None

    @property
    def lock(self) -> SessionLock | None:
        """Return the lock of the session that it receives from, if any."""
        return None

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept()
        self.is_accepted = True
        self.attach_consumer()
        self.on_credit()

    def attach_consumer(self) -> None:
        """Show the link as a consumer of its entity until it ends."""
        if self.node.address.sub_queue is SubQueue.MAIN:
            self.front.broker.consumers.attach(self.entity.id)
            self._is_consumer = True

    def find_entity(self) -> Queue | Subscription:
        """See `EntityLink`."""
        return self.front.broker.receivable(self.node.address, is_sessionful=self.is_sessionful)

    def on_end(self) -> None:
        """See `Attached`."""
        self._leave()
        if self._is_consumer:
            self._is_consumer = False
            self.front.broker.consumers.detach(self.entity.id)
        if self._settling is None:
            self.link.finish()
        if self.link.unsent:
            tokens = [tag_of(delivery.tag) for delivery in self.link.unsent]
            self._returning = self.front.tasks.start(self.front.broker.release(self.node.address, tokens))

    # Sending

    @property
    def wanted(self) -> int:
        """See `Waiter`."""
        return self.link.sendable

    @property
    def can_take(self) -> bool:
        """See `Waiter`."""
        return self.link.is_open and self.link.credit > 0

    @property
    def is_there(self) -> bool:
        """See `Waiter`."""
        return self.link.is_open

    def on_credit(self) -> None:
        """See `Attached`."""
        if self.link.drain:
            self._dispatcher = self.dispatcher()
            self._dispatcher.hurry(self)
        elif self.wanted:
            self._dispatcher = self.dispatcher()
            self._dispatcher.join(self)
        elif self.link.credit <= 0:
            self._leave()

    def dispatcher(self) -> Dispatcher[Received]:
        """Return the dispatcher of the messages, to join it at once."""
        return self.front.broker.dispatcher(self.entity.id, self.node.address, self.mode)

    def deliver(self, received: Received) -> None:
        """See `Waiter`."""
        message = received.message
        is_settled = message.token is None
        tag = b"" if message.token is None else tag_of(message.token)
        # A deleted message must be sent even without credit: to the client, it has crossed its flow on the wire.
        is_late = is_settled and self.link.credit <= 0
        payload = self.front.encode(received, self.entity)
        self.link.send(payload, tag, settled=is_settled, context=message.locked_until, beyond_credit=is_late)
        self.client.flush()

    def finish(self) -> None:
        """See `Waiter`. After a drain, report the credit as used up."""
        # Without room for output, `on_credit` continues later.
        if self.link.sendable or self.link.credit <= 0:
            self.link.answer_drain()
            self.client.flush()

    def fail(self, error: Exception) -> None:
        """See `Waiter`."""
        # The client waits for the answer to its drain, even if the link ends.
        self.link.answer_drain()
        self.client.end(self, self.front.refuse_once(error))

    def _leave(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.leave(self)

    # Settling

    def lapse(self) -> None:
        """Give up deliveries whose lock has expired, so that a client at its limit can get others."""
        if self._lapsing is None:
            now = self.front.broker.clock.steady()
            ended = [it for it in self.link.unsettled.values() if it.context is None or it.context <= now]
            if ended:
                self._lapsing = self.front.tasks.start(self._lapse(ended[: self.front.limits.lapsed]))

    async def _lapse(self, deliveries: list[OutgoingDelivery]) -> None:
        try:
            tokens = [tag_of(each.tag) for each in deliveries]
            # Locks may have been renewed over $management, which this link does not see.
            ends = await self.front.broker.locked_until(self.node.address, tokens, self.lock)
            over: list[OutgoingDelivery] = []
            for delivery, end in zip(deliveries, ends, strict=True):
                if end is None:
                    over.append(delivery)
                else:
                    delivery.context = end
            refusal = refusal_of_outcome(Outcome.MESSAGE_LOCK_LOST)
            assert refusal is not None
            self.link.lapse(over, Rejected(refusal.error))
            self.client.flush()
        except OncebusError as error:
            log.info("Expired locks could not be checked, and are checked again later: %s", error)
        finally:
            self._lapsing = None

    def on_disposition(self, event: Disposed) -> None:
        """See `Attached`."""
        if isinstance(event.state, ReceivedState) and not event.settled:
            # The client has not decided yet.
            return
        state, work = event.state, None
        if isinstance(state, TransactionalState):
            try:
                work = work_of(self.client, self.link, state)
            except UnknownTransaction as error:
                # Its lock holds, so the client may settle it again.
                self.link.answer(event.deliveries, Rejected(self.client.refusal(error).error))
                return
            state = state.outcome
        self._decide(_Decision(event.deliveries, state, event.settled, work))

    def _decide(self, decision: _Decision) -> None:
        self._decisions.append(decision)
        if self._settling is None:
            self.client.settling.add(self)
            self._settling = self.front.tasks.start(self._settle_all())

    @property
    def entity_id(self) -> int:
        """See `SettlingReceiver`."""
        return self.entity.id

    async def wait_until_settled(self) -> None:
        """See `SettlingReceiver`."""
        if self._settling is not None:
            applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append(applied)
            await applied

    async def wait_until_finished(self) -> None:
        """Wait, after the link has ended, until all decisions are applied and unsent messages are released."""
        if self._dispatcher is not None:
            await self._dispatcher.wait_for_look()
        for task in (self._settling, self._returning):
            if task is not None:
                await asyncio.wait([task])

    async def _settle_all(self) -> None:
        try:
            while self._decisions or self._awaited:
                decisions, self._decisions = self._decisions, []
                awaited, self._awaited = self._awaited, []
                for work, some in itertools.groupby(decisions, lambda decision: decision.work):
                    if work is None:
                        await self._settle(list(some))
                    else:
                        await self._settle_in(work, list(some))
                    self.client.flush()
                _answer_all(awaited)
        finally:
            self._settling = None
            self.client.settling.discard(self)
            _answer_all(self._awaited)
            self.link.finish()
            self.client.flush()

    async def _settle(self, decisions: Sequence[_Decision]) -> None:
        """Apply decisions in one call of the broker. Each gets its own answer."""
        understood, settlements = self._understood(decisions)
        if not settlements:
            return
        try:
            outcomes = await self.front.broker.settle(self.node.address, settlements, session=self.lock)
        except Exception as error:
            refused = Rejected(self.client.refusal(error).error)
            for decision in understood:
                self._answer(decision, decision.deliveries, refused)
            return
        at = 0
        for decision in understood:
            of_decision = outcomes[at : at + len(decision.deliveries)]
            at += len(decision.deliveries)
            # Successive deliveries with the same answer can share a frame.
            start = 0
            for outcome, same in itertools.groupby(of_decision):
                stop = start + len(list(same))
                deliveries, start = decision.deliveries[start:stop], stop
                if outcome is Outcome.IN_TRANSACTION:
                    self._decide_after_rollback(decision, deliveries)
                    continue
                refusal = refusal_of_outcome(outcome)
                answer = answer_to(decision.state) if refusal is None else Rejected(refusal.error)
                self._answer(decision, deliveries, answer)

    def _decide_after_rollback(self, decision: _Decision, deliveries: Sequence[OutgoingDelivery]) -> None:
        """Keep a decision on deliveries that a transaction settles, in case that is rolled back.

        Java releases what it has settled in a transaction, before the commit.
        """
        for delivery in deliveries:
            again = partial(self._decide, decision._replace(deliveries=[delivery]))
            self.front.broker.when_rolled_back(tag_of(delivery.tag), again)

    def _understood(self, decisions: Sequence[_Decision]) -> tuple[list[_Decision], list[Settlement]]:
        """Return the decisions that are final, with a settlement for each delivery. Refuses those that are unknown."""
        understood: list[_Decision] = []
        settlements: list[Settlement] = []
        for decision in decisions:
            try:
                tokens = [tag_of(delivery.tag) for delivery in decision.deliveries]
                found = settlements_of(tokens, decision.state, is_settled=decision.is_settled)
            except AmqpRefused as error:
                self._answer(decision, decision.deliveries, Rejected(error.refusal.error))
                continue
            if found:
                understood.append(decision)
                settlements += found
        return understood, settlements

    async def _settle_in(self, work: Work, decisions: Sequence[_Decision]) -> None:
        """Apply the decisions of one request in a transaction. Their deliveries are settled when it is committed."""
        understood, settlements = self._understood(decisions)
        decided = [(decision, delivery) for decision in understood for delivery in decision.deliveries]
        txn_id = work.transaction.id
        # The client forgets what it has settled. It cannot settle that again after a rollback, and others wait for it.
        forgotten = [tag_of(delivery.tag) for decision, delivery in decided if decision.is_settled]
        if forgotten:
            work.transaction.when_rolled_back(lambda: self.front.tasks.start(self._abandon(forgotten)), work)
        try:
            with work:
                outcomes = await work.settle(self.node.address, settlements, session=self.lock)
                for (decision, delivery), outcome in zip(decided, outcomes, strict=True):
                    refusal = refusal_of_outcome(outcome)
                    if refusal is not None:
                        self._answer(decision, [delivery], TransactionalState(txn_id, Rejected(refusal.error)))
                        continue
                    confirmed = answer_to(decision.state)
                    assert not isinstance(confirmed, Declared | TransactionalState)
                    answer = TransactionalState(txn_id, confirmed)
                    self.link.answer([delivery], answer)
                    work.when_committed(partial(self._answer, decision, [delivery], answer))
        except Exception as error:
            deliveries = [delivery for _, delivery in decided]
            self.link.answer(deliveries, TransactionalState(txn_id, Rejected(self.client.refusal(error).error)))

    async def _abandon(self, tokens: Sequence[bytes]) -> None:
        settlements = [Settlement(Action.ABANDON, token) for token in tokens]
        # If the entity or the session is gone, so are the locks.
        with suppress(OncebusError):
            await self.front.broker.settle(self.node.address, settlements, session=self.lock)

    def _answer(
        self, decision: _Decision, deliveries: Sequence[OutgoingDelivery], answer: DeliveryState | None
    ) -> None:
        if answer is not None and not decision.is_settled:
            self.link.settle(deliveries, answer)


def _answer_all(awaited: Sequence[asyncio.Future[None]]) -> None:
    for each in awaited:
        if not each.done():
            each.set_result(None)
