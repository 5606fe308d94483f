"""The sending side of a session: numbering, the peer's window, waiting deliveries and unsettled deliveries."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncebus.amqp.fastwrite import continued_fields, room, transfer_head
from oncebus.amqp.limits import MOST_LAPSED
from oncebus.amqp.numbers import MASK, ahead, lies_within

if TYPE_CHECKING:
    from oncebus.amqp.outcomes import DeliveryState
    from oncebus.amqp.outgoing import OutgoingDelivery, OutgoingLink
    from oncebus.amqp.output import Output


@dataclass(slots=True)
class _Rest:
    """The unwritten rest of a delivery. `fields` are the first fields of its next transfer.

    Without a payload it is a flow of the link, which must not overtake earlier deliveries. `held` is the number of its
    bytes that count as waiting answers.
    """

    link: OutgoingLink
    delivery: OutgoingDelivery | None
    fields: bytes
    handle: bytes
    payload: memoryview | None
    settled: bool
    held: int


class Outbound:
    """The sending side of a session.

    `window` is how many transfers the peer accepts. `unsettled` holds all deliveries of the session that neither side
    has settled, by id, in the order they were sent. `lapsed` holds the answers for deliveries that were given up, in
    case the peer still settles them. When it is full, it forgets the oldest.
    """

    __slots__ = (
        "_channel",
        "_largest_frame",
        "_output",
        "_waiting",
        "lapsed",
        "next_delivery",
        "next_transfer",
        "unsettled",
        "window",
    )

    def __init__(self, output: Output, channel: int, largest_frame: int, window: int) -> None:
        self._output = output
        self._channel = channel
        self._largest_frame = largest_frame
        self._waiting: deque[_Rest] = deque()
        self.window = window
        self.next_transfer = 0
        self.next_delivery = 0
        self.unsettled: dict[int, OutgoingDelivery] = {}
        self.lapsed: dict[int, DeliveryState] = {}

    @property
    def room(self) -> int:
        """Return how many deliveries may begin now on any link of the session, if each fits in one frame."""
        output = self._output
        if self._waiting or output.is_full:
            return 0
        left = output.most_unsettled - output.unsettled
        return self.window if self.window < left else max(left, 0)

    def send(self, delivery: OutgoingDelivery, fields: bytes, handle: bytes, payload: bytes, is_answer: bool) -> None:
        """Write a delivery as far as window and output allow, and keep the rest for later."""
        size, settled = len(payload), delivery.settled
        if self.window > 0 and not self._waiting and size <= room(fields, self._largest_frame):
            output = self._output
            if not output.is_full:
                output.write_transfer(transfer_head(self._channel, fields, settled, False, size), payload)
                self.next_transfer = (self.next_transfer + 1) & MASK
                self.window -= 1
                return
        held = size if is_answer else 0
        self._waiting.append(_Rest(delivery.link, delivery, fields, handle, memoryview(payload), settled, held))
        self._output.held += held
        delivery.link.waiting += 1
        self.pump()

    def follow(self, link: OutgoingLink, flow: bytes) -> bool:
        """Queue a flow of a link after its waiting deliveries. If none is waiting, queue nothing and return False."""
        if not link.waiting:
            return False
        self._waiting.append(_Rest(link, None, flow, b"", None, True, len(flow)))
        self._output.held += len(flow)
        link.waiting += 1
        return True

    def pump(self) -> None:
        """Write waiting deliveries as far as window and output allow."""
        waiting, output = self._waiting, self._output
        while waiting:
            rest = waiting[0]
            if rest.payload is None:
                waiting.popleft()
                output.held -= rest.held
                rest.link.waiting -= 1
                rest.link.session.write_flow(rest.fields)
                continue
            if self.window <= 0 or output.is_full:
                return
            space = room(rest.fields, self._largest_frame)
            payload = rest.payload[:space]
            more = len(rest.payload) > space
            output.write_transfer(transfer_head(self._channel, rest.fields, rest.settled, more, len(payload)), payload)
            self.next_transfer = (self.next_transfer + 1) & MASK
            self.window -= 1
            if more:
                rest.payload = rest.payload[space:]
                rest.fields = continued_fields(rest.handle)
            else:
                waiting.popleft()
                output.held -= rest.held
                rest.link.waiting -= 1

    def set_window(self, next_incoming: int | None, window: int) -> bool:
        """Apply the peer's window from a flow. Return whether deliveries may now begin that could not begin before."""
        was_shut = self.window <= 0 or bool(self._waiting)
        # A peer that has not seen our begin yet has received nothing; our transfers count from 0.
        on_the_way = ahead(next_incoming or 0, self.next_transfer)
        self.window = max(window - max(on_the_way, 0), 0)
        self.pump()
        return was_shut and self.room > 0

    def forget(self, link: OutgoingLink) -> list[OutgoingDelivery]:
        """Drop the waiting deliveries of a link. Return those that were not completely written."""
        if not link.waiting:
            return []
        dropped = [rest for rest in self._waiting if rest.link is link]
        self._waiting = deque(rest for rest in self._waiting if rest.link is not link)
        self._output.held -= sum(rest.held for rest in dropped)
        link.waiting = 0
        return [rest.delivery for rest in dropped if rest.delivery is not None]

    def lapse(self, delivery_id: int, answer: DeliveryState) -> None:
        """Give up a delivery that the peer has not settled. A late disposition gets `answer`."""
        if self.unsettled.pop(delivery_id, None) is not None:
            self._output.unsettled -= 1
            if len(self.lapsed) >= MOST_LAPSED:
                del self.lapsed[next(iter(self.lapsed))]
            self.lapsed[delivery_id] = answer

    def late(self, first: int, last: int) -> list[tuple[int, DeliveryState]]:
        """Return the ids in a range that were given up, with their answers. Each id is returned once."""
        if first == last:
            found = [first] if first in self.lapsed else []
        else:
            found = [each for each in self.lapsed if lies_within(each, first, last)]
        return [(each, self.lapsed.pop(each)) for each in found]

    def find_unsettled(self, first: int, last: int) -> dict[OutgoingLink, list[OutgoingDelivery]]:
        """Return the unsettled deliveries in a range, by link.

        The cost is bounded by the number of unsettled deliveries, not by the range.
        """
        unsettled = self.unsettled
        found: dict[OutgoingLink, list[OutgoingDelivery]] = {}
        if first == last:
            delivery = unsettled.get(first)
            return {} if delivery is None else {delivery.link: [delivery]}
        length = ((last - first) & MASK) + 1
        if length <= len(unsettled):
            deliveries = [
                unsettled[number & MASK] for number in range(first, first + length) if number & MASK in unsettled
            ]
        else:
            deliveries = [
                delivery for delivery_id, delivery in unsettled.items() if lies_within(delivery_id, first, last)
            ]
        for delivery in deliveries:
            found.setdefault(delivery.link, []).append(delivery)
        return found
