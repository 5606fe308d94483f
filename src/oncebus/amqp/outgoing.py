"""A link on which the peer receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncebus.amqp.conditions import NOT_ALLOWED
from oncebus.amqp.events import CreditChanged
from oncebus.amqp.fastread import FlowFields, TransferFields
from oncebus.amqp.fastwrite import delivery_fields, link_flow
from oncebus.amqp.link import Link
from oncebus.amqp.performatives import SENDER, Attach, Outcome
from oncebus.amqp.serial import MASK, ahead
from oncebus.errors import OncebusError

if TYPE_CHECKING:
    from oncebus.amqp.session import Session


class NotSendable(OncebusError):
    """A delivery was to be sent on a link that is over or has no credit: look at `sendable` first."""


@dataclass(slots=True, eq=False)
class OutgoingDelivery:
    """A delivery that was sent. `id` counts in the session; `context` belongs to the one who sent it."""

    id: int
    tag: bytes
    settled: bool
    context: Any
    link: OutgoingLink


class OutgoingLink(Link):
    """The peer receives. `credit` is how many deliveries it asks for; `drain`: now or never.

    `unsettled` holds the deliveries that neither side has settled, by id, in the order they were sent; `waiting` is how
    many have been sent that are not all written, `is_answering` whether answers were among them. Once the link is over
    `unsent` holds those that nobody has settled and the peer cannot have had whole.

    A peer that tells what became of deliveries, waits to hear that they are settled, and detaches meanwhile, gets those
    answers before that to its detach: `settle` works until then, though the link is over. Whoever answers the link
    calls `finish` when there is nothing more to settle.
    """

    __slots__ = ("_is_leaving_closed", "_owed", "drain", "is_answering", "unsent", "unsettled", "waiting")

    def __init__(self, session: Session, attach: Attach, handle: int) -> None:
        super().__init__(session, attach, handle)
        self.drain = False
        self.waiting = 0
        self.is_answering = False
        self.unsent: list[OutgoingDelivery] = []
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self._owed: set[int] = set()
        # How the peer has detached, while our answer to that waits.
        self._is_leaving_closed: bool | None = None

    @property
    def sendable(self) -> int:
        """How many deliveries may begin now: by credit, by the session's window, by what waits in the output."""
        if not self.is_open or self.credit <= 0:
            return 0
        return min(self.credit, self.session.outbound.room)

    def send(
        self,
        payload: bytes,
        tag: bytes,
        *,
        settled: bool,
        format: int = 0,  # noqa: A002
        context: Any = None,
        beyond_credit: bool = False,
    ) -> OutgoingDelivery:
        """Begin a delivery. What the peer's window or the output do not take at once follows by itself, in order.

        `beyond_credit` is for answers that a peer waits for though it has forgotten to give credit for them. Where they
        have to wait, CreditChanged tells when they are written, and a peer that lets too many wait is cut.
        """
        if not self.is_open or (self.credit <= 0 and not beyond_credit):
            reason = "it has no credit" if self.is_open else "it is not open"
            raise NotSendable(f"Nothing can be sent on the link {self.name!r:.200}: {reason}.")
        outbound = self.session.outbound
        delivery_id = outbound.next_delivery
        fields = delivery_fields(self._encoded_handle, delivery_id, tag, format)
        outbound.next_delivery = (delivery_id + 1) & MASK
        if self.credit > 0:
            self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & MASK
        delivery = OutgoingDelivery(delivery_id, tag, settled, context, self)
        if not settled:
            self.unsettled[delivery_id] = outbound.unsettled[delivery_id] = delivery
            output = self.connection.out
            output.unsettled += 1
            if output.unsettled >= output.most_unsettled:
                output.is_stuck = True
        outbound.send(delivery, fields, self._encoded_handle, payload, beyond_credit)
        if beyond_credit and self.waiting:
            self.is_answering = True
        return delivery

    def drained(self) -> None:
        """If the peer has asked to drain: use up its credit and say so, behind all that was sent before."""
        if self.drain and self.is_open:
            self.drain = False
            self.delivery_count = (self.delivery_count + self.credit) & MASK
            self.credit = 0
            flow = link_flow(self._encoded_handle, self.delivery_count, 0, True)
            if not self.session.outbound.follow(self, flow):
                self.session.write_flow(flow)

    def settle(self, deliveries: Sequence[OutgoingDelivery], outcome: Outcome) -> None:
        """Settle deliveries with this outcome: the answer to a `Disposed` that was not settled.

        Deliveries that are settled already are passed over. Neighbours become one range.
        """
        if not self.is_open and self._is_leaving_closed is None:
            return
        of_session, owed = self.session.outbound.unsettled, self._owed
        ids = []
        output = self.connection.out
        for delivery in deliveries:
            if self.unsettled.pop(delivery.id, None) is not None:
                if of_session.pop(delivery.id, None) is not None:
                    output.unsettled -= 1
                owed.discard(delivery.id)
                delivery.settled = True
                ids.append(delivery.id)
        self.session.settle(SENDER, ids, outcome)
        if not owed:
            self.finish()

    def lapse(self, deliveries: Sequence[OutgoingDelivery], answer: Outcome) -> None:
        """Give up deliveries that the peer has not settled, to make room for others.

        A peer that still says what became of one of them is answered with `answer`; there is no event.
        """
        for delivery in deliveries:
            if delivery.id not in self._owed and self.unsettled.pop(delivery.id, None) is not None:
                self.session.outbound.lapse(delivery.id, answer)

    def finish(self) -> None:
        """Answer the peer's detach, if that has waited for settlements."""
        if self._is_leaving_closed is not None:
            closed, self._is_leaving_closed = self._is_leaving_closed, None
            self.session.on_left(self)
            self._write_detach(None, closed)

    def on_transfer(self, fields: TransferFields, payload: bytes) -> None:  # noqa: ARG002
        """The peer cannot send here."""
        if not self.is_over:
            self.fail(NOT_ALLOWED, f"The link {self.name!r:.200} was attached to receive, not to send.")

    def on_disposed(self, deliveries: list[OutgoingDelivery]) -> list[OutgoingDelivery]:
        """The peer has told what became of these, and waits for them to be settled. Those of which it is new."""
        owed = self._owed
        if owed:
            deliveries = [delivery for delivery in deliveries if delivery.id not in owed]
        owed.update([delivery.id for delivery in deliveries])
        return deliveries

    def on_settled(self, deliveries: Sequence[OutgoingDelivery]) -> None:
        """The peer has settled these."""
        of_session = self.session.outbound.unsettled
        for delivery in deliveries:
            delivery.settled = True
            del of_session[delivery.id]
            del self.unsettled[delivery.id]
            self._owed.discard(delivery.id)
        self.connection.out.unsettled -= len(deliveries)

    def on_session_end(self) -> None:
        """The session is over, and the link with it."""
        self._is_leaving_closed = None
        super().on_session_end()

    def on_flow(self, fields: FlowFields) -> None:
        """The peer has told how much it takes."""
        if self.is_over:
            return
        _, _, _, _, _, delivery_count, credit, drain, echo = fields
        if credit is not None:
            # What it has counted may lag behind what is on its way; before it has seen our attach it counts from 0.
            on_the_way = ahead(delivery_count or 0, self.delivery_count)
            self.credit = max(credit - max(on_the_way, 0), 0)
            self.drain = drain
            self.connection.report(CreditChanged(self))
        if echo and self.is_open:
            self.write_flow()

    def _answer_detach(self, closed: bool) -> None:
        if self._owed:
            self._is_leaving_closed = closed
            self.session.on_leaving(self)
        else:
            super()._answer_detach(closed)

    def forget(self) -> None:
        """Let go of the deliveries that were not settled, and of what of them has not been written."""
        outbound = self.session.outbound
        for delivery_id in self.unsettled:
            if outbound.unsettled.pop(delivery_id, None) is not None:
                self.connection.out.unsettled -= 1
        self.unsent = [it for it in outbound.forget(self) if not it.settled and it.id not in self._owed]
