"""A client's sender: its transfers become messages of a queue or a topic."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from oncebus.access import Operation
from oncebus.amqp import BATCH_FORMAT, ULong
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.performatives import Accepted, Rejected
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MOST_MESSAGES, Incoming, check_encoded, largest_batch
from oncebus.entities import BadRequest, EntityDisabled, NotFound, Queue, Topic
from oncebus.entities.limits import largest_message
from oncebus.inbox import InboxFull
from oncebus.servicebus.addresses import Node
from oncebus.servicebus.attached import Attached, Client
from oncebus.servicebus.errors import refusal_of
from oncebus.servicebus.messages import incoming
from oncebus.store import SubQueue

log = logging.getLogger(__name__)

MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
# Errors that do not depend on the messages: all other transfers would fail too.
_FOR_ALL = (BrokerClosed, ClockLeapt, InboxFull, NotFound, EntityDisabled, ServerBusy)
_READ_BEYOND = 16 << 20


class _Sent(NamedTuple):
    """A transfer and its messages, which are accepted together or not at all."""

    delivery: Delivery
    messages: Sequence[Incoming]

    @property
    def size(self) -> int:
        return sum(message.size for message in self.messages)


class Sender(Attached[IncomingLink]):
    """Sends messages in the order of their transfers.

    Transfers that arrive during a call of the broker are sent together in the next one.
    Received transfers are sent even if the link has ended, because a client may leave without waiting for an answer.
    """

    def __init__(self, client: Client, link: IncomingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self._waiting: deque[Delivery] = deque()
        self._task: asyncio.Task[None] | None = None
        self._entity = self._permitted()

    def open(self) -> None:
        """See `Attached`."""
        largest = largest_message(self._entity)
        self.link.accept(max_message_size=largest, properties={MAX_BATCH_SIZE: ULong(largest_batch(self._entity))})
        # Read a message that is somewhat too large to its end, so that the message is rejected and the link stays.
        self.link.largest_message = largest + _READ_BEYOND
        self.is_accepted = True
        self.link.grant(self.front.limits.credit)

    def delivered(self, delivery: Delivery) -> None:
        """See `Attached`."""
        self.client.hold(len(delivery.payload))
        self._waiting.append(delivery)
        if self._task is None:
            self._task = self.front.tasks.start(self._send_all())

    def check(self) -> None:
        """See `Attached`."""
        entity = self._permitted()
        if entity.id != self._entity.id:
            raise NotFound(self.node.address.path)
        self._entity = entity

    def _permitted(self) -> Queue | Topic:
        self.held_by = self.client.credentials.require(Operation.SEND, self.node.path)
        path, sub_queue = self.node.address
        if sub_queue is not SubQueue.MAIN:
            raise BadRequest(f"Messages cannot be sent to the dead letters of '{path}'.")
        return self.front.broker.sendable(path)

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                for group in self._groups():
                    await self._send(group)
                self._top_up()
                self.client.flush()
        finally:
            self._task = None

    def _top_up(self) -> None:
        most = self.front.limits.credit
        if self.link.credit < most // 2:
            self.link.grant(most - len(self._waiting))

    def _groups(self) -> list[list[_Sent]]:
        """Return the waiting transfers in order, in groups no larger than the largest batch. Rejects malformed ones."""
        most = largest_batch(self._entity)
        groups: list[list[_Sent]] = []
        size = count = 0
        while self._waiting:
            delivery = self._waiting.popleft()
            try:
                check_encoded(self._entity, len(delivery.payload), is_batch=delivery.format == BATCH_FORMAT)
                sent = _Sent(delivery, incoming(delivery.payload, delivery.format))
            except Exception as error:
                self._refuse(delivery, error)
                continue
            size, count = size + sent.size, count + len(sent.messages)
            if not groups or size > most or count > MOST_MESSAGES:
                groups.append([])
                size, count = sent.size, len(sent.messages)
            groups[-1].append(sent)
        return groups

    async def _send(self, group: list[_Sent]) -> None:
        """Send a group in one call. If it is refused, try its halves, so that only the bad transfers are rejected."""
        messages = [message for sent in group for message in sent.messages]
        try:
            await self.front.broker.send(self.node.address.path, messages)
        except Exception as error:
            if len(group) == 1 or isinstance(error, _FOR_ALL):
                for sent in group:
                    self._refuse(sent.delivery, error)
                return
            middle = len(group) // 2
            await self._send(group[:middle])
            await self._send(group[middle:])
            return
        self.link.settle([sent.delivery for sent in group if not sent.delivery.settled], Accepted())
        self.client.hold(-sum(len(sent.delivery.payload) for sent in group))

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        refusal = refusal_of(error)
        self.front.broker.note_refusal(self.node.path, error)
        if delivery.settled:
            # The sender does not wait for an answer, so only the log has the reason.
            log.info("A message for '%s' was refused: %s", self.node.path, refusal.text)
        else:
            self.link.settle([delivery], Rejected(refusal.error))
        self.client.hold(-len(delivery.payload))
