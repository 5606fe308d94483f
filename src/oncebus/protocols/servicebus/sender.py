"""A client's sender: its transfers become messages of a queue or a topic."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.message import BATCH_FORMAT
from oncebus.amqp.outcomes import Accepted, TransactionalState
from oncebus.amqp.types import ULong
from oncebus.broker.addresses import sent_path
from oncebus.broker.coalescing import Submission, SubmissionQueue
from oncebus.broker.sending import Incoming, check_encoded, largest_batch
from oncebus.broker.transactions import UnknownTransaction, Work
from oncebus.model.access import Operation
from oncebus.model.entities import Queue, Topic
from oncebus.model.entities.limits import largest_message
from oncebus.protocols.servicebus.attached import EntityLink, LinkConnection
from oncebus.protocols.servicebus.messages import incoming
from oncebus.protocols.servicebus.nodes import Node
from oncebus.protocols.servicebus.transactions import answer_in, work_of

log = logging.getLogger(__name__)

MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
_READ_BEYOND = 16 << 20
_ACCEPTED = Accepted()


class Sender(EntityLink[IncomingLink, Queue | Topic]):
    """Sends messages in the order of their transfers, together with those of other senders (`Coalescer`).

    Received transfers are sent even if the link has ended, because a client may leave without waiting for an answer.
    """

    operation = Operation.SEND

    def __init__(self, client: LinkConnection, link: IncomingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self.path = node.address.path
        self._submissions = SubmissionQueue(client.front.broker.coalescer, self)

    def open(self) -> None:
        """See `Attached`."""
        largest = largest_message(self.entity)
        self.link.accept(max_message_size=largest, properties={MAX_BATCH_SIZE: ULong(self.largest)})
        # Read a message that is somewhat too large to its end, so that the message is rejected and the link stays.
        self.link.largest_message = largest + _READ_BEYOND
        self.is_accepted = True
        self.link.grant(self.front.limits.credit)

    def on_delivery(self, delivery: Delivery) -> None:
        """See `Attached`."""
        self.client.hold(len(delivery.payload))
        if delivery.state is not None:
            try:
                delivery.context = work_of(self.client, self.link, delivery.state)
            except UnknownTransaction as error:
                self._refuse(delivery, error)
                return
        self._submissions.add(delivery)

    def find_entity(self) -> Queue | Topic:
        """See `EntityLink`."""
        entity = self.front.broker.sendable(sent_path(self.node.address))
        self.largest = largest_batch(entity)
        return entity

    def check(self) -> None:
        """See `Attached`. The entity may have another limit now."""
        super().check()
        self.entity = self.find_entity()

    def read(self, delivery: Delivery) -> Submission[Delivery] | None:
        """See `Submitter`. Return None too for a transfer in a transaction."""
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
        if work is not None:
            self._send_in(work, delivery, messages)
            return None
        return Submission(delivery, messages, size)

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """See `Submitter`."""
        self.link.settle(deliveries, _ACCEPTED)
        size = 0
        for delivery in deliveries:
            size += len(delivery.payload)
        self._note_answered(size)

    def refuse(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        """See `Submitter`."""
        for delivery in deliveries:
            self._refuse(delivery, error)

    def _send_in(self, work: Work, delivery: Delivery, messages: Sequence[Incoming]) -> None:
        """Send the messages of a transfer in a transaction."""
        try:
            with work:
                work.send(self.node.address.path, messages)
        except Exception as error:
            self._refuse(delivery, error)
            return
        self.link.settle([delivery], TransactionalState(work.transaction.id, Accepted()))
        self._note_answered(len(delivery.payload))

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        refusal = self.client.refusal(error)
        self.front.broker.note_refusal(self.node.path, error)
        if delivery.settled:
            # The sender does not wait for an answer, so only the log has the reason.
            log.info("A message for '%s' was refused: %s", self.node.path, refusal.text)
        else:
            self.link.settle([delivery], answer_in(delivery.state, refusal.error, error))
        self._note_answered(len(delivery.payload))

    def _note_answered(self, size: int) -> None:
        self.client.hold(-size)
        most = self.front.limits.credit
        if self.link.credit < most // 2:
            self.link.grant(most - len(self._submissions.waiting))
        self.client.flush()
