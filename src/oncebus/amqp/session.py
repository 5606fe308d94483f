"""The session: dispatches frames to its links and keeps the incoming window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oncebus.amqp.conditions import (
    ERRANT_LINK,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    Violation,
)
from oncebus.amqp.events import CreditChanged, Disposed, LinkAttached, LinkDetached, SessionEnded
from oncebus.amqp.fastread import (
    DispositionFields,
    FlowFields,
    TransferFields,
    disposition_fields,
    flow_fields,
    transfer_fields,
)
from oncebus.amqp.fastwrite import encode_state, flow_frame
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.limits import DELIVERIES_PER_WORK, LONGEST_NAME, STATE_WORK, WINDOW
from oncebus.amqp.link import Link
from oncebus.amqp.numbers import MASK, FreeNumbers
from oncebus.amqp.outbound import Outbound
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, ReceivedState
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Transfer,
)

if TYPE_CHECKING:
    from oncebus.amqp.connection import Connection

OUTGOING_WINDOW = 0x7FFFFFFF
_NO_LINK = b"\x40" * 7


class Session:
    """A session that the peer has begun.

    `channel` is ours. The code that handles the session's links may store anything in `context`.

    Only the connection and the links call methods that begin with `on_`.
    """

    __slots__ = (
        "_by_handle",
        "_errant",
        "_handle_max",
        "_handles",
        "_leaving",
        "_left",
        "_next_incoming",
        "_window",
        "channel",
        "connection",
        "context",
        "is_open",
        "outbound",
        "remote_channel",
    )

    def __init__(self, connection: Connection, begin: Begin, channel: int, remote_channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel = remote_channel
        self.is_open = True
        self.context: Any = None
        self.outbound = Outbound(connection.out, channel, connection.remote_frame_size, begin.incoming_window)
        self._handle_max = begin.handle_max
        self._handles = FreeNumbers()
        self._next_incoming = begin.next_outgoing_id
        self._window = WINDOW
        self._by_handle: dict[int, Link] = {}
        self._errant: set[int] = set()
        self._leaving: list[OutgoingLink] = []
        self._left: list[Link] | None = []
        self.write(
            Begin(
                remote_channel=remote_channel,
                next_outgoing_id=self.outbound.next_transfer,
                incoming_window=WINDOW,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=connection.handle_max,
            )
        )

    @property
    def links(self) -> list[Link]:
        """Return the links that have not ended, in the order they were attached."""
        return [link for link in self._by_handle.values() if not link.is_over]

    @property
    def link_count(self) -> int:
        """Return the number of links the peer holds here, including those that only one side has detached."""
        return len(self._by_handle) + len(self._leaving)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session. The events for its links and itself follow once the peer has answered."""
        if self.is_open:
            self.shut()
            self.write(End(error=error))

    def fail(self, condition: str, description: str) -> None:
        """End the session because of the peer's error, and report it as ended."""
        error = AmqpError(condition, description)
        self.end(error)
        self.report_end(error)

    def shut(self) -> None:
        """Mark the session ended and end all its links, without events."""
        if self.is_open:
            self.is_open = False
            self._left = self.links
            self.connection.link_count -= self.link_count
            for link in self._left:
                link.on_session_end()
            for leaving in self._leaving:
                leaving.on_session_end()
            self._by_handle.clear()
            self._leaving.clear()

    def report_end(self, error: AmqpError | None) -> None:
        """Report the links detached and the session ended, once."""
        left, self._left = self._left, None
        if left is not None:
            for link in left:
                self.connection.report(LinkDetached(link, error, True))
            self.connection.report(SessionEnded(self, error))

    def write(self, performative: Performative) -> None:
        """Write a frame on this session's channel."""
        self.connection.write(self.channel, performative)

    def write_flow(self, link: bytes = _NO_LINK) -> None:
        """Write a flow with the windows and, if given, a link's credit. This reopens the incoming window."""
        self._window = WINDOW
        outbound = self.outbound
        self.connection.out.write(
            flow_frame(self.channel, self._next_incoming, WINDOW, outbound.next_transfer, OUTGOING_WINDOW, link)
        )

    def reopen_window(self) -> None:
        """Reopen the incoming window if half of it is used."""
        if self.is_open and self._window <= WINDOW // 2:
            self.write_flow()

    def settle(self, role: bool, delivery_ids: Iterable[int], outcome: DeliveryState) -> None:
        """Write dispositions that settle deliveries with an outcome. Consecutive ids become one range."""
        state = encode_state(outcome, self.connection.remote_frame_size)
        settle = self.connection.out.settle
        first = last = following = -1
        for delivery_id in delivery_ids:
            if delivery_id != following:
                if first >= 0:
                    settle(self.channel, role, first, last, state)
                first = delivery_id
            last = delivery_id
            following = (delivery_id + 1) & MASK
        if first >= 0:
            settle(self.channel, role, first, last, state)

    def answer(self, role: bool, delivery_ids: Iterable[int], outcome: DeliveryState) -> None:
        """Write the outcome of deliveries that are not settled yet."""
        for delivery_id in delivery_ids:
            self.write(Disposition(role=role, first=delivery_id, last=delivery_id, settled=False, state=outcome))

    def report_room(self) -> None:
        """Report `CreditChanged` for each link that has credit or had answers waiting, if there is room."""
        if self.is_open and self.outbound.room > 0:
            for link in self._by_handle.values():
                if isinstance(link, OutgoingLink) and link.is_open and (link.credit > 0 or link.is_answering):
                    link.is_answering = False
                    self.connection.report(CreditChanged(link))

    def on_performative(self, performative: Performative, payload: bytes) -> int:
        """Dispatch a performative that the general decoder has read. Return the work beyond that of one frame."""
        if isinstance(performative, Attach):
            self.on_attach(performative)
        elif isinstance(performative, Detach):
            self.on_detach(performative)
        elif isinstance(performative, Transfer):
            self.on_transfer(transfer_fields(performative, 0), payload)
        elif isinstance(performative, Disposition):
            return self.on_disposition(disposition_fields(performative))
        elif isinstance(performative, Flow):
            self.on_flow(flow_fields(performative))
        return 0

    def on_attach(self, attach: Attach) -> None:
        """Handle an attach: create the link and report it.

        Raises `Violation` if the peer exceeds a limit of the connection.
        """
        connection = self.connection
        if attach.handle > connection.handle_max:
            raise Violation(FRAMING_ERROR, f"The handle {attach.handle} is above handle-max {connection.handle_max}.")
        if attach.handle in self._by_handle:
            taken = self._by_handle[attach.handle].name
            self.fail(HANDLE_IN_USE, f"The handle {attach.handle} is in use by the link {taken!r:.200}.")
            return
        if self._handles.lowest > self._handle_max:
            self.fail(RESOURCE_LIMIT_EXCEEDED, f"No handle is left below handle-max {self._handle_max}.")
            return
        # Close instead of refusing the link: a refused link would stay until the peer answers.
        if connection.link_count >= connection.most_links:
            raise Violation(RESOURCE_LIMIT_EXCEEDED, f"The connection already has {connection.most_links} links.")
        if len(attach.name) > LONGEST_NAME:
            raise Violation(RESOURCE_LIMIT_EXCEEDED, f"The name of a link is longer than {LONGEST_NAME} characters.")
        link = (OutgoingLink if attach.role == RECEIVER else IncomingLink)(self, attach, self._handles.take())
        connection.link_count += 1
        self._by_handle[attach.handle] = link
        self._errant.discard(attach.handle)
        connection.report(LinkAttached(link))

    def on_detach(self, detach: Detach) -> None:
        """Handle a detach by the peer, or its answer to ours. A handle without a link is ignored."""
        link = self._by_handle.pop(detach.handle, None)
        if link is not None:
            link.on_detach(detach)
            if link not in self._leaving:
                self._release(link)

    def on_detached(self, link: Link, error: AmqpError | None) -> None:
        """Record that we detached a link. It stays until the peer answers."""
        if error is not None:
            self._errant.add(link.remote_handle)

    def on_leaving(self, link: OutgoingLink) -> None:
        """Record that the peer detached a link. Our handle stays in use until we answer."""
        self._leaving.append(link)

    def on_left(self, link: OutgoingLink) -> None:
        """Free a link after the peer's detach, because nothing is left to settle and our answer is due."""
        self._leaving.remove(link)
        self._release(link)

    def on_transfer(self, fields: TransferFields, payload: bytes) -> None:
        """Handle a transfer: count it in the window and pass it to its link."""
        self._next_incoming = (self._next_incoming + 1) & MASK
        window = self._window = self._window - 1
        if window < WINDOW // 2:
            if window < 0:
                self.fail(WINDOW_VIOLATION, f"The peer exceeded the incoming-window of {WINDOW} transfers.")
                return
            self.connection.reopen_later(self)
        link = self._by_handle.get(fields[0])
        if link is None:
            self._fail_unattached(fields[0])
        else:
            link.on_transfer(fields, payload)

    def on_flow(self, fields: FlowFields) -> None:
        """Handle a flow: apply the peer's windows and pass the rest to its link."""
        next_incoming, window, next_outgoing, _, handle, _, _, _, echo = fields
        self._next_incoming = next_outgoing
        if self.outbound.set_window(next_incoming, window):
            self.report_room()
        if handle is None:
            if echo:
                self.write_flow()
            return
        link = self._by_handle.get(handle)
        if link is None:
            self._fail_unattached(handle)
        else:
            link.on_flow(fields)

    def on_disposition(self, fields: DispositionFields) -> int:
        """Handle a disposition of deliveries to the peer. Return the work beyond that of one frame.

        A disposition of deliveries from the peer is ignored, because we settle those in one step.
        """
        role, first, last, settled, state = fields
        if role != RECEIVER or (state is None and not settled):
            return 0
        outbound = self.outbound
        scanned = 0 if first == last else min((last - first) & MASK, len(outbound.unsettled)) + len(outbound.lapsed)
        for link, deliveries in self.outbound.find_unsettled(first, last).items():
            if settled:
                link.on_settled(deliveries)
            elif not isinstance(state, ReceivedState):
                deliveries = link.on_disposed(deliveries)
            if deliveries:
                self.connection.report(Disposed(link, deliveries, state, settled))
        if self.outbound.lapsed and not isinstance(state, ReceivedState):
            for delivery_id, answer in self.outbound.late(first, last):
                if not settled:
                    self.settle(SENDER, [delivery_id], answer)
        usual = settled or isinstance(state, Accepted)
        return scanned // DELIVERIES_PER_WORK + (0 if usual else STATE_WORK)

    def on_end(self, end: End) -> None:
        """Handle an end by the peer, or its answer to ours."""
        if self.is_open:
            self.shut()
            self.write(End())
        self.report_end(end.error)

    def _release(self, link: Link) -> None:
        """Free the handle of a link that both sides have detached."""
        if self.is_open:
            self._handles.free(link.handle)
            self.connection.link_count -= 1

    def _fail_unattached(self, handle: int) -> None:
        if handle in self._errant:
            self.fail(ERRANT_LINK, f"The link with the handle {handle} was detached with an error.")
        else:
            self.fail(UNATTACHED_HANDLE, f"No link has the handle {handle}.")
