"""The link on which the peer sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncebus.amqp.conditions import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
)
from oncebus.amqp.events import Delivered
from oncebus.amqp.fastread import FlowFields, TransferFields
from oncebus.amqp.fastwrite import LONGEST_TAG
from oncebus.amqp.link import Link
from oncebus.amqp.numbers import MASK, ahead
from oncebus.amqp.outcomes import DeliveryState
from oncebus.amqp.performatives import RECEIVER, SETTLED, Attach

if TYPE_CHECKING:
    from oncebus.amqp.session import Session


@dataclass(slots=True)
class Delivery:
    """A complete delivery from the peer. `id` should be unique in the session; `format` is the message-format.

    `state` is the peer's; a transactional state says which transaction the delivery belongs to. `context` is for the
    code that handles the delivery.
    """

    id: int
    tag: bytes
    format: int
    settled: bool
    payload: bytes
    state: DeliveryState | None = None
    context: Any = None


@dataclass(slots=True)
class _Unfinished:
    id: int
    tag: bytes
    format: int
    settled: bool
    payload: bytearray
    state: DeliveryState | None


class IncomingLink(Link):
    """A link on which the peer sends. `credit` is how many deliveries the peer may still begin.

    Some clients send without credit when they run out of it. So the link accepts as many deliveries beyond the credit
    as the largest grant so far; `credit` is negative then.
    """

    __slots__ = ("_most_granted", "_unfinished")

    def __init__(self, session: Session, attach: Attach, handle: int) -> None:
        super().__init__(session, attach, handle)
        self.delivery_count = attach.initial_delivery_count or 0
        self._most_granted = 0
        self._unfinished: _Unfinished | None = None

    def grant(self, credit: int) -> None:
        """Raise the credit to this number and notify the peer.

        Credit is never revoked, and is not renewed automatically.
        """
        if self.is_open and credit > self.credit:
            self.credit = credit
            self._most_granted = max(self._most_granted, credit)
            self.write_flow()

    def settle(self, deliveries: Sequence[Delivery], outcome: DeliveryState) -> None:
        """Settle these deliveries with this outcome. Consecutive ids become one range in a frame."""
        if self.is_open:
            self.session.settle(RECEIVER, [delivery.id for delivery in deliveries if not delivery.settled], outcome)

    def on_transfer(self, fields: TransferFields, payload: bytes) -> None:
        """Handle a transfer: a delivery or a part of one."""
        if self.is_over:
            # The peer sent it before it received our detach.
            return
        _, delivery_id, tag, message_format, settled, more, aborted, _, state = fields
        if self._unfinished is not None:
            self._continue(fields, payload)
            return
        if aborted:
            # The peer began and aborted it in one frame.
            return
        if delivery_id is None or tag is None or len(tag) > LONGEST_TAG:
            missing = "has no delivery-id" if delivery_id is None else f"has the delivery-tag {tag!r:.100}"
            self.fail(INVALID_FIELD, f"A delivery on the link {self.name!r:.200} {missing}.")
            return
        if self.credit <= -self._most_granted:
            self.fail(TRANSFER_LIMIT_EXCEEDED, f"Too many deliveries on the link {self.name!r:.200} without credit.")
            return
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & MASK
        is_settled = settled is True or self.attach.snd_settle_mode == SETTLED
        if more:
            self._unfinished = _Unfinished(delivery_id, tag, message_format or 0, is_settled, bytearray(), state)
            self._add(payload)
        elif len(payload) > self.largest_message:
            self._refuse_size(len(payload))
        else:
            self.connection.report(
                Delivered(self, Delivery(delivery_id, tag, message_format or 0, is_settled, payload, state))
            )

    def on_flow(self, fields: FlowFields) -> None:
        """Handle a flow: the peer may have advanced its delivery-count and so given up credit."""
        delivery_count = fields[5]
        if delivery_count is not None:
            steps = ahead(self.delivery_count, delivery_count)
            if 0 < steps <= self.credit:
                self.delivery_count = delivery_count
                self.credit -= steps
        if fields[8] and self.is_open:
            self.write_flow()

    def forget(self) -> None:
        """Discard a delivery that has arrived only in part."""
        if self._unfinished is not None:
            self.connection.unfinished_bytes -= len(self._unfinished.payload)
            self._unfinished = None

    def _continue(self, fields: TransferFields, payload: bytes) -> None:
        _, delivery_id, _, _, settled, more, aborted, _, state = fields
        unfinished = self._unfinished
        assert unfinished is not None
        if aborted:
            # It was not delivered, so the peer gets its credit back.
            self.forget()
            self.credit += 1
            self.write_flow()
            return
        if delivery_id is not None and delivery_id != unfinished.id:
            self.fail(
                INVALID_FIELD,
                f"The delivery {delivery_id} on the link {self.name!r:.200} began before {unfinished.id} was complete.",
            )
            return
        if settled:
            unfinished.settled = True
        if state is not None:
            unfinished.state = state
        if not self._add(payload) or more:
            return
        self.forget()
        whole = Delivery(
            unfinished.id,
            unfinished.tag,
            unfinished.format,
            unfinished.settled,
            bytes(unfinished.payload),
            unfinished.state,
        )
        self.connection.report(Delivered(self, whole))

    def _add(self, payload: bytes) -> bool:
        unfinished = self._unfinished
        assert unfinished is not None
        connection = self.connection
        size = len(unfinished.payload) + len(payload)
        if size > self.largest_message:
            self._refuse_size(size)
        elif connection.unfinished_bytes + len(payload) > connection.most_unfinished_bytes:
            self.fail(
                RESOURCE_LIMIT_EXCEEDED,
                f"The incomplete deliveries of the connection exceed {connection.most_unfinished_bytes} bytes.",
            )
        else:
            unfinished.payload += payload
            connection.unfinished_bytes += len(payload)
            return True
        return False

    def _refuse_size(self, size: int) -> None:
        self.fail(
            MESSAGE_SIZE_EXCEEDED,
            f"The received message (size: {size} bytes) exceeds the limit ({self.largest_message} bytes) currently "
            f"allowed on the link {self.name!r:.200}.",
        )
