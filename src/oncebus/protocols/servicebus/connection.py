"""One client connection: passes events to its links, and ends links that may not continue."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection
from typing import Any

from oncebus.amqp.conditions import CONNECTION_FORCED, NOT_ALLOWED
from oncebus.amqp.connection import Connection
from oncebus.amqp.events import (
    Closed,
    CreditChanged,
    Delivered,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    Opened,
    SaslInit,
)
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.link import Link
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import Coordinator
from oncebus.model.access.scopes import Path
from oncebus.model.entities import BadRequest
from oncebus.protocols.servicebus.attached import Attached, SettlingReceiver
from oncebus.protocols.servicebus.browser import Browser, asks_to_browse
from oncebus.protocols.servicebus.credentials import ConnectionCredentials
from oncebus.protocols.servicebus.errors import AmqpRefusal, AmqpRefused, refusal_of
from oncebus.protocols.servicebus.front import ServiceBusFront
from oncebus.protocols.servicebus.management import ManagementRequests
from oncebus.protocols.servicebus.nodes import TRANSACTIONS, Node, NodeKind, node_of
from oncebus.protocols.servicebus.receiver import Receiver
from oncebus.protocols.servicebus.requests import Replies
from oncebus.protocols.servicebus.sender import Sender
from oncebus.protocols.servicebus.session_receiver import SessionReceiver, asks_for_session
from oncebus.protocols.servicebus.tokens import TokenRequests
from oncebus.protocols.servicebus.transactions import TransactionRequests, go_via, note_link
from oncebus.protocols.servicebus.transport import Wire

log = logging.getLogger(__name__)

PLAIN = "PLAIN"
NEVER = 1 << 63


class ClientConnection:
    """The Service Bus side of one connection. It is a `Peer` for the engine, and a `LinkConnection` for its links.

    `deadline` is when its links must be checked next. The connection calls `known` when the client has authenticated,
    `unknown` when it has no valid credentials any more, and `gone` when the connection is over.
    It may call each more than once.
    """

    def __init__(
        self,
        front: ServiceBusFront,
        connection: Connection,
        wire: Wire,
        gone: Callable[[ClientConnection], None],
        known: Callable[[ClientConnection], None] = lambda _: None,
        unknown: Callable[[ClientConnection], None] = lambda _: None,
    ) -> None:
        self.front = front
        self.credentials = ConnectionCredentials(front.guard, front.now, front.limits.tokens, front.host)
        self.transactions = front.broker.transactions()
        self.deadline = NEVER
        self.settling: set[SettlingReceiver] = set()
        self._connection = connection
        self._wire = wire
        self._gone = gone
        self._refused: AmqpError | None = None
        self._is_open = False
        self._known = known
        self._unknown = unknown
        self._links: dict[Link, Attached[Any]] = {}
        # The last link of each kind to $cbs.
        self._to_cbs: dict[type[Attached[Any]], Link] = {}
        self._by_token: dict[Path, dict[Attached[Any], None]] = {}
        # Links with a scheduled check, by its time; the number keeps links with the same time in order.
        self._due: list[tuple[int, int, Attached[Any]]] = []
        self._scheduled = 0
        self._held = 0

    # From the engine

    def on_events(self, events: list[Event]) -> None:
        """See `Peer`."""
        links = self._links
        for event in events:
            if type(event) is Delivered:
                # The event that comes with each message.
                if (attached := links.get(event.link)) is not None:
                    attached.on_delivery(event.delivery)
            else:
                self._on_event(event)
                links = self._links

    def on_lost(self) -> None:
        """See `Peer`."""
        self._end_all()
        self._gone(self)

    def _on_event(self, event: Event) -> None:
        match event:
            case CreditChanged():
                if (attached := self._links.get(event.link)) is not None:
                    attached.on_credit()
            case Disposed():
                if (attached := self._links.get(event.link)) is not None:
                    attached.on_disposition(event)
            case LinkAttached():
                self._attach(event.link)
            case LinkDetached():
                if (attached := self._drop(event.link)) is not None:
                    attached.on_end()
            case SaslInit():
                self._sign_in(event)
            case Opened():
                self._is_open = True
                opened = self._connection.remote_open
                if opened is not None and opened.hostname:
                    self.credentials.host = opened.hostname
                if self._refused is not None:
                    self._connection.close(self._refused)
            case Closed():
                self._end_all()

    def _sign_in(self, event: SaslInit) -> None:
        is_known = event.mechanism != PLAIN or self.credentials.sign_in(event.response)
        if not is_known:
            log.info("A client failed to sign in", extra={"fields": {"remote": self._wire.remote}})
        elif event.mechanism == PLAIN:
            self._note_trusted()
        self._connection.answer_sasl(is_known)

    def _attach(self, link: Link) -> None:
        try:
            note_link(link)
            attached = self._make_link(link)
            self._links[link] = link.context = attached
            self._track(attached)
            attached.open()
        except Exception as error:
            self._drop(link)
            link.refuse(self.refusal(error).error)
            self.front.broker.note_refusal(_address(link), error)

    def _make_link(self, link: Link) -> Attached[Any]:
        """Create our end of a link. Raises if the client lacks the right, or the address is not valid."""
        if isinstance(link, OutgoingLink):
            node = _node(link.attach.source)
            if node.kind is NodeKind.ENTITY:
                if asks_to_browse(link):
                    return Browser(self, link, node)
                receiver = (SessionReceiver if asks_for_session(link) else Receiver)(self, link, node)
                go_via(link, receiver.entity, receives=True)
                return receiver
            self._check_single(Replies, link, node)
            return Replies(self, link, node)
        assert isinstance(link, IncomingLink)
        node = TRANSACTIONS if isinstance(link.attach.target, Coordinator) else _node(link.attach.target)
        match node.kind:
            case NodeKind.ENTITY:
                sender = Sender(self, link, node)
                go_via(link, sender.entity, receives=False)
                return sender
            case NodeKind.MANAGEMENT:
                return ManagementRequests(self, link, node)
            case NodeKind.TOKENS:
                self._check_single(TokenRequests, link, node)
                return TokenRequests(self, link, node, self._note_trusted)
            case NodeKind.TRANSACTIONS:
                return TransactionRequests(self, link)

    def _check_single(self, kind: type[Attached[Any]], link: Link, node: Node) -> None:
        """Raise `AmqpRefused` for a second link of this kind to $cbs: a connection has one pair."""
        if node.kind is not NodeKind.TOKENS:
            return
        if self._to_cbs.get(kind) in self._links:
            raise AmqpRefused(NOT_ALLOWED, 400, "The connection already has such a link to $cbs. Close that one first.")
        self._to_cbs[kind] = link

    def _note_trusted(self) -> None:
        self._connection.trust()
        self.transactions.key = self.credentials.key
        self._known(self)
        self._set_deadline()

    def _track(self, attached: Attached[Any]) -> None:
        """Record which token permits a link."""
        if attached.held_by is not None:
            self._by_token.setdefault(attached.held_by, {})[attached] = None

    def _untrack(self, attached: Attached[Any]) -> None:
        if attached.held_by is not None and (held := self._by_token.get(attached.held_by)) is not None:
            held.pop(attached, None)
            if not held:
                del self._by_token[attached.held_by]

    def _drop(self, link: Link) -> Attached[Any] | None:
        attached = self._links.pop(link, None)
        if attached is not None:
            self._untrack(attached)
        return attached

    def _end_all(self) -> None:
        links, self._links = self._links, {}
        self._by_token.clear()
        self._due.clear()
        for attached in links.values():
            attached.on_end()

    # From the links

    def refusal(self, error: Exception) -> AmqpRefusal:
        """See `LinkConnection`."""
        return refusal_of(error, self.credentials.host)

    @property
    def links(self) -> Collection[Attached[Any]]:
        """See `LinkConnection`."""
        return self._links.values()

    def flush(self) -> None:
        """See `LinkConnection`."""
        self._wire.flush()

    async def see_settlements(self, entity: int) -> None:
        """See `LinkConnection`."""
        for receiver in list(self.settling):
            if receiver.entity_id == entity:
                await receiver.wait_until_settled()

    def hold(self, size: int) -> None:
        """See `LinkConnection`."""
        most, before = self.front.limits.bytes_under_way, self._held
        self._held += size
        if before <= most < self._held:
            self._wire.pause()
        elif self._held <= most < before:
            self._wire.resume()

    def end(self, attached: Attached[Any], error: Exception) -> None:
        """See `LinkConnection`."""
        if self._drop(attached.link) is None:
            return
        refusal = self.refusal(error).error
        self.front.broker.note_refusal(attached.node.path, error)
        if attached.is_accepted:
            attached.link.detach(refusal)
        else:
            attached.link.refuse(refusal)
        attached.on_end()
        self.flush()

    def look_at(self, attached: Attached[Any], time: int) -> None:
        """See `LinkConnection`."""
        # A link needs only its earliest entry: the check at that time schedules a later one if needed.
        if attached.due is None or time < attached.due:
            attached.due = time
            self._scheduled += 1
            heapq.heappush(self._due, (time, self._scheduled, attached))
            self._set_deadline()

    # From the server

    @property
    def weight(self) -> int:
        """Return the cost of checking this connection: itself, its links and its tokens."""
        return 1 + len(self._links) + len(self.credentials)

    def check(self, has_changed: bool = False) -> None:
        """End the links that may not continue, because their entity, token, key or session has changed.

        Checks all links if something `has_changed`, and once a minute. Otherwise checks only the links whose token has
        expired and the links with a scheduled check that is due.
        """
        now = self.front.now()
        concerned: dict[Attached[Any], None] = {}
        for path in self.credentials.take_expired(now):
            concerned |= self._by_token.get(path, {})
        while self._due and self._due[0][0] <= now:
            due, _, attached = heapq.heappop(self._due)
            if attached.due == due:
                attached.due = None
                concerned[attached] = None
        if has_changed or self.credentials.is_due:
            self.credentials.look_again()
            concerned = dict.fromkeys(self._links.values())
        for attached in concerned:
            if self._links.get(attached.link) is attached:
                self._check(attached)
        if not self.credentials.is_good:
            self._unknown(self)
        elif self._connection.is_trusted:
            self._known(self)
        self._set_deadline()

    def _check(self, attached: Attached[Any]) -> None:
        self._untrack(attached)
        try:
            attached.check()
        except Exception as error:
            self.end(attached, error)
        else:
            self._track(attached)

    def _set_deadline(self) -> None:
        times = [NEVER, self.credentials.next_look or NEVER]
        if self._due:
            times.append(self._due[0][0])
        self.deadline = min(times)

    def make_room(self) -> None:
        """If the client has reached its limit of unsettled deliveries, give up those whose lock has expired."""
        if self._connection.out.is_stuck:
            for attached in self._links.values():
                if isinstance(attached, Receiver):
                    attached.lapse()

    def refuse(self, error: AmqpError) -> None:
        """Close the connection with this error. If it is not open yet, close it right after it has opened."""
        self._refused = error
        if self._is_open:
            self._connection.close(error)
            self.flush()

    def close(self) -> None:
        """Close the connection because the server is shutting down."""
        self._connection.close(AmqpError(CONNECTION_FORCED, "The server is shutting down. Please connect again later."))
        self.flush()

    def abort(self) -> None:
        """Drop the connection at once. It no longer counts."""
        self._gone(self)
        self._wire.abort()


def _address(link: Link) -> str:
    terminus = link.attach.source if isinstance(link, OutgoingLink) else link.attach.target
    address = getattr(terminus, "address", None)
    return address if isinstance(address, str) else ""


def _node(terminus: Any) -> Node:
    address = getattr(terminus, "address", None)
    if not address:
        raise BadRequest("The link has no address.")
    return node_of(address)
