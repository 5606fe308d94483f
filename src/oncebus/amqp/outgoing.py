"""The link on which the peer receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncebus.amqp.conditions import NOT_ALLOWED
from oncebus.amqp.events import CreditChanged
from oncebus.amqp.fastread import FlowFields, TransferFields
from oncebus.amqp.fastwrite import delivery_fields, link_flow
from oncebus.amqp.link import Link
from oncebus.amqp.numbers import MASK, ahead
from oncebus.amqp.outcomes import DeliveryState
from oncebus.amqp.performatives import SENDER, Attach
from oncebus.values.errors import OncebusError

if TYPE_CHECKING:
    from oncebus.amqp.session import Session


class NotSendable(OncebusError):
    """The link is over or has no credit: check `sendable` before sending."""


@dataclass(slots=True, eq=False)
class OutgoingDelivery:
    """A delivery to the peer. `id` is unique in the session. `context` is for the caller of `send`."""

    id: int
    tag: bytes
    settled: bool
    context: Any
    link: OutgoingLink


class OutgoingLink(Link):
    """A link on which the peer receives.

    `credit` is how many deliveries the peer asks for. With `drain`, the peer wants them now and gives up the credit
    that cannot be used. `unsettled` holds the deliveries that neither side has settled, by id, in the order they were
    sent. `waiting` counts the deliveries that are not completely written; `is_answering` says whether answers were
    among them. Once the link is over, `unsent` holds the unsettled deliveries that the peer cannot have received
    completely.

    A peer may report outcomes and then detach while it still waits for us to settle them. It gets these settlements
    before the answer to its detach: `settle` still works then, although the link is over. The code that answers the
    link calls `finish` when there is nothing more to settle.
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
        # The `closed` of the peer's detach, while our answer to it waits.
        self._is_leaving_closed: bool | None = None

    @property
    def sendable(self) -> int:
        """Return how many deliveries may begin now, given the credit, the session's window and the waiting output."""
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
        """Begin a delivery. The part that does not fit the peer's window or the output follows automatically, in order.

        `beyond_credit` is for answers that a peer waits for without having granted credit for them. If they have to
        wait, `CreditChanged` reports when they are written. A peer that lets too many wait is disconnected.

        Raises `NotSendable` if the link is over, or has no credit and `beyond_credit` is not set.
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

    def answer_drain(self) -> None:
        """Answer a drain: use up the credit and report that to the peer, after all earlier deliveries."""
        if self.drain and self.is_open:
            self.drain = False
            self.delivery_count = (self.delivery_count + self.credit) & MASK
            self.credit = 0
            flow = link_flow(self._encoded_handle, self.delivery_count, 0, True)
            if not self.session.outbound.follow(self, flow):
                self.session.write_flow(flow)

    def settle(self, deliveries: Sequence[OutgoingDelivery], outcome: DeliveryState) -> None:
        """Settle deliveries with this outcome: the answer to a `Disposed` event that was not settled.

        Deliveries that are already settled are skipped. Consecutive ids become one range in a frame.
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

    def answer(self, deliveries: Sequence[OutgoingDelivery], outcome: DeliveryState) -> None:
        """Answer a `Disposed` event without settling. The peer may report another outcome later.

        This is for outcomes in a transaction, which count when it is committed, and for outcomes that are refused.
        """
        if not self.is_open and self._is_leaving_closed is None:
            return
        ids = [delivery.id for delivery in deliveries if delivery.id in self.unsettled]
        self._owed.difference_update(ids)
        self.session.answer(SENDER, ids, outcome)
        if not self._owed:
            self.finish()

    def lapse(self, deliveries: Sequence[OutgoingDelivery], answer: DeliveryState) -> None:
        """Give up deliveries that the peer has not settled, to make room for others.

        A peer that still reports an outcome for one of them gets `answer`, without an event.
        """
        for delivery in deliveries:
            if delivery.id not in self._owed and self.unsettled.pop(delivery.id, None) is not None:
                self.session.outbound.lapse(delivery.id, answer)

    def finish(self) -> None:
        """Answer the peer's detach, if the answer waited for settlements."""
        if self._is_leaving_closed is not None:
            closed, self._is_leaving_closed = self._is_leaving_closed, None
            self.session.on_left(self)
            self._write_detach(None, closed)

    def on_transfer(self, fields: TransferFields, payload: bytes) -> None:  # noqa: ARG002
        """Detach the link: the peer must not send on it."""
        if not self.is_over:
            self.fail(NOT_ALLOWED, f"The link {self.name!r:.200} was attached to receive, not to send.")

    def on_disposed(self, deliveries: list[OutgoingDelivery]) -> list[OutgoingDelivery]:
        """Record that the peer waits for us to settle these deliveries.

        Return those that it reports for the first time.
        """
        owed = self._owed
        if owed:
            deliveries = [delivery for delivery in deliveries if delivery.id not in owed]
        owed.update([delivery.id for delivery in deliveries])
        return deliveries

    def on_settled(self, deliveries: Sequence[OutgoingDelivery]) -> None:
        """Remove deliveries that the peer has settled."""
        of_session = self.session.outbound.unsettled
        for delivery in deliveries:
            delivery.settled = True
            del of_session[delivery.id]
            del self.unsettled[delivery.id]
            self._owed.discard(delivery.id)
        self.connection.out.unsettled -= len(deliveries)

    def on_session_end(self) -> None:
        """See `Link`."""
        self._is_leaving_closed = None
        super().on_session_end()

    def on_flow(self, fields: FlowFields) -> None:
        """Handle a flow: apply the peer's credit and drain."""
        if self.is_over:
            return
        _, _, _, _, _, delivery_count, credit, drain, echo = fields
        if credit is not None:
            # The peer's count does not include deliveries in flight; before it sees our attach, it counts from 0.
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
        """Drop unsettled deliveries and their unwritten parts; fill `unsent`."""
        outbound = self.session.outbound
        for delivery_id in self.unsettled:
            if outbound.unsettled.pop(delivery_id, None) is not None:
                self.connection.out.unsettled -= 1
        self.unsent = [it for it in outbound.forget(self) if not it.settled and it.id not in self._owed]
