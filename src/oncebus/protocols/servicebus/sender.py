"""A client's sender: its transfers become messages of a queue or a topic."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.message import BATCH_FORMAT
from oncebus.amqp.outcomes import Accepted, TransactionalState
from oncebus.amqp.types import ULong
from oncebus.broker.addresses import sent_path
from oncebus.broker.sending import MOST_MESSAGES, check_encoded, largest_batch
from oncebus.broker.transactions import UnknownTransaction, Work
from oncebus.model.access import Operation
from oncebus.model.entities import NotFound, Queue, Topic
from oncebus.model.entities.limits import largest_message
from oncebus.protocols.servicebus.attached import Attached, Client
from oncebus.protocols.servicebus.messages import incoming
from oncebus.protocols.servicebus.nodes import Node
from oncebus.protocols.servicebus.sends import Sent, is_for_all
from oncebus.protocols.servicebus.transactions import answer_in, work_of

log = logging.getLogger(__name__)

MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
_READ_BEYOND = 16 << 20
_ACCEPTED = Accepted()


class Sender(Attached[IncomingLink]):
    """Sends messages in the order of their transfers, together with those of other senders (`Sends`).

    Transfers that have to wait, or that come with a bad one, are sent by a task of the sender's own. As long as it
    runs, later transfers wait for it.
    Received transfers are sent even if the link has ended, because a client may leave without waiting for an answer.
    """

    def __init__(self, client: Client, link: IncomingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self.path = node.address.path
        # For the task: transfers that have been read, and later ones.
        self._apart: list[Sent] = []
        self._waiting: deque[Delivery] = deque()
        self._task: asyncio.Task[None] | None = None
        self.entity = self._permitted()
        self.largest = largest_batch(self.entity)

    def open(self) -> None:
        """See `Attached`."""
        largest = largest_message(self.entity)
        self.link.accept(max_message_size=largest, properties={MAX_BATCH_SIZE: ULong(self.largest)})
        # Read a message that is somewhat too large to its end, so that the message is rejected and the link stays.
        self.link.largest_message = largest + _READ_BEYOND
        self.is_accepted = True
        self.link.grant(self.front.limits.credit)

    def delivered(self, delivery: Delivery) -> None:
        """See `Attached`."""
        self.client.hold(len(delivery.payload))
        if delivery.state is not None:
            try:
                delivery.context = work_of(self.client, self.link, delivery.state)
            except UnknownTransaction as error:
                self._refuse(delivery, error)
                return
        self.front.sends.add(self, delivery)

    def check(self) -> None:
        """See `Attached`."""
        entity = self._permitted()
        if entity.id != self.entity.id:
            raise NotFound(self.node.address.path)
        self.entity = entity
        self.largest = largest_batch(entity)

    def _permitted(self) -> Queue | Topic:
        self.held_by = self.client.credentials.require(Operation.SEND, self.node.path)
        return self.front.broker.sendable(sent_path(self.node.address))

    # Together with others

    @property
    def is_apart(self) -> bool:
        """See `Sending`."""
        return self._task is not None

    def read(self, delivery: Delivery) -> Sent | None:
        """See `Sending`. While earlier transfers are sent apart, this one waits for them."""
        if self.is_apart:
            self._waiting.append(delivery)
            return None
        return self._read(delivery)

    def accepted(self, deliveries: Sequence[Delivery]) -> None:
        """See `Sending`."""
        self.link.settle(deliveries, _ACCEPTED)
        size = 0
        for delivery in deliveries:
            size += len(delivery.payload)
        self._answered(size)

    def refused(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        """See `Sending`."""
        for delivery in deliveries:
            self._refuse(delivery, error)

    def send_apart(self, transfers: Sequence[Sent]) -> None:
        """See `Sending`."""
        self._apart += transfers
        if self._task is None:
            self._task = self.front.tasks.start(self._send_apart())

    def _read(self, delivery: Delivery) -> Sent | None:
        """Return a transfer with its messages; None if that is all, because it is malformed or in a transaction."""
        payload = delivery.payload
        work: Work | None = delivery.context
        try:
            check_encoded(self.entity, len(payload), is_batch=delivery.format == BATCH_FORMAT)
            messages = incoming(payload, delivery.format)
        except Exception as error:
            if work is not None:
                work.close(error)
            self._refuse(delivery, error)
            return None
        size = 0
        for head, body, *_ in messages:
            size += len(head) + len(body)
        sent = Sent(delivery, messages, size)
        if work is not None:
            self._send_in(work, sent)
            return None
        return sent

    def _answered(self, size: int) -> None:
        self.client.hold(-size)
        most = self.front.limits.credit
        if self.link.credit < most // 2:
            self.link.grant(most - len(self._waiting))
        self.client.flush()

    # Apart

    async def _send_apart(self) -> None:
        try:
            while self._apart or self._waiting:
                for group in self._groups():
                    await self._send(group)
        finally:
            self._task = None

    def _groups(self) -> list[list[Sent]]:
        """Return the transfers for the task in order, in groups no larger than the largest batch."""
        transfers, self._apart = self._apart, []
        while self._waiting:
            sent = self._read(self._waiting.popleft())
            if sent is not None:
                transfers.append(sent)
        groups: list[list[Sent]] = []
        size = count = 0
        for sent in transfers:
            size, count = size + sent.size, count + len(sent.messages)
            if not groups or size > self.largest or count > MOST_MESSAGES:
                groups.append([])
                size, count = sent.size, len(sent.messages)
            groups[-1].append(sent)
        return groups

    async def _send(self, group: list[Sent]) -> None:
        """Send a group in one call. If it is refused, try its halves, so that only the bad transfers are rejected."""
        messages = [message for sent in group for message in sent.messages]
        try:
            await self.front.broker.send(self.path, messages)
        except Exception as error:
            if len(group) == 1 or is_for_all(error):
                self.refused([sent.delivery for sent in group], error)
                return
            middle = len(group) // 2
            await self._send(group[:middle])
            await self._send(group[middle:])
            return
        self.accepted([sent.delivery for sent in group])

    def _send_in(self, work: Work, sent: Sent) -> None:
        """Send the messages of a transfer in a transaction."""
        delivery = sent.delivery
        try:
            with work:
                work.send(self.node.address.path, sent.messages)
        except Exception as error:
            self._refuse(delivery, error)
            return
        self.link.settle([delivery], TransactionalState(work.transaction.id, Accepted()))
        self._answered(len(delivery.payload))

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        refusal = self.client.refusal(error)
        self.front.broker.note_refusal(self.node.path, error)
        if delivery.settled:
            # The sender does not wait for an answer, so only the log has the reason.
            log.info("A message for '%s' was refused: %s", self.node.path, refusal.text)
        else:
            self.link.settle([delivery], answer_in(delivery.state, refusal.error, error))
        self._answered(len(delivery.payload))
