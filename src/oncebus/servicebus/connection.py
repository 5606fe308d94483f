"""One connection of a client: its events go to its links, its links' ends to the client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

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
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import AmqpError, Coordinator
from oncebus.amqp.protocol import Wire
from oncebus.entities import BadRequest
from oncebus.servicebus.addresses import Kind, Node, node_of
from oncebus.servicebus.attached import Attached
from oncebus.servicebus.credentials import Credentials
from oncebus.servicebus.errors import FORCED, LIMIT, NOT_IMPLEMENTED, Refused, refusal_of
from oncebus.servicebus.front import Front
from oncebus.servicebus.management import ManagementRequests
from oncebus.servicebus.receiver import Receiver
from oncebus.servicebus.requests import Replies
from oncebus.servicebus.sender import Sender
from oncebus.servicebus.session_receiver import SessionReceiver, asks_for_session
from oncebus.servicebus.tokens import TokenRequests

log = logging.getLogger(__name__)

PLAIN = "PLAIN"
NEVER = 1 << 63


class ClientConnection:
    """The dialect's side of one connection: a `Peer` to the engine, a `Client` to its links.

    `deadline` is when its links are to be checked next. With `refuse` it is closed as soon as it is open. `known` is
    called when it has shown who it is, `gone` when it is over.
    """

    def __init__(
        self,
        front: Front,
        connection: Connection,
        wire: Wire,
        gone: Callable[[ClientConnection], None],
        refuse: AmqpError | None = None,
        known: Callable[[ClientConnection], None] = lambda _: None,
    ) -> None:
        self.front = front
        self.credentials = Credentials(
            front.guard, lambda: front.broker.catalogue, front.now, front.limits.tokens, front.host
        )
        self.deadline = NEVER
        self._connection = connection
        self._wire = wire
        self._gone = gone
        self._refuse = refuse
        self._known = known
        self._links: dict[Link, Attached[Any]] = {}
        self._held = 0

    # From the engine

    def on_events(self, events: list[Event]) -> None:
        """See `Peer`."""
        for event in events:
            self._on_event(event)

    def on_lost(self) -> None:
        """See `Peer`."""
        self._end_all()
        self._gone(self)

    def _on_event(self, event: Event) -> None:
        match event:
            case Delivered():
                if (attached := self._links.get(event.link)) is not None:
                    attached.delivered(event.delivery)
            case CreditChanged():
                if (attached := self._links.get(event.link)) is not None:
                    attached.credit_changed()
            case Disposed():
                if (attached := self._links.get(event.link)) is not None:
                    attached.disposed(event)
            case LinkAttached():
                self._attach(event.link)
            case LinkDetached():
                if (attached := self._links.pop(event.link, None)) is not None:
                    attached.ended()
            case SaslInit():
                self._sign_in(event)
            case Opened():
                if self._refuse is not None:
                    self._connection.close(self._refuse)
            case Closed():
                self._end_all()

    def _sign_in(self, event: SaslInit) -> None:
        is_known = event.mechanism != PLAIN or self.credentials.sign_in(event.response)
        if not is_known:
            log.info("A client could not sign in", extra={"fields": {"remote": self._wire.remote}})
        elif event.mechanism == PLAIN:
            self._trusted()
        self._connection.answer_sasl(is_known)

    def _attach(self, link: Link) -> None:
        try:
            attached = self._attached(link)
            self._links[link] = link.context = attached
            attached.open()
        except Exception as error:
            self._links.pop(link, None)
            link.refuse(refusal_of(error).error)
            self.front.core.note_refusal(_address(link), error)

    def _attached(self, link: Link) -> Attached[Any]:
        """What a link is attached to, if the client may."""
        if len(self._links) >= self.front.limits.links:
            raise Refused(LIMIT, 403, f"The connection has {self.front.limits.links} links already.")
        if isinstance(link, OutgoingLink):
            node = _node(link.attach.source)
            if node.kind is Kind.ENTITY:
                return (SessionReceiver if asks_for_session(link) else Receiver)(self, link, node)
            return Replies(self, link, node)
        assert isinstance(link, IncomingLink)
        if isinstance(link.attach.target, Coordinator):
            raise Refused(NOT_IMPLEMENTED, 501, "Transactions are not supported.")
        node = _node(link.attach.target)
        match node.kind:
            case Kind.ENTITY:
                return Sender(self, link, node)
            case Kind.MANAGEMENT:
                return ManagementRequests(self, link, node)
            case Kind.TOKENS:
                return TokenRequests(self, link, node, self._trusted)

    def _trusted(self) -> None:
        self._connection.trust()
        self._known(self)
        expires = self.credentials.expires_after(self.front.now())
        if expires is not None:
            self.look_at(expires)

    def _end_all(self) -> None:
        links, self._links = self._links, {}
        for attached in links.values():
            attached.ended()

    # From the links

    @property
    def links(self) -> Collection[Attached[Any]]:
        """See `Client`."""
        return self._links.values()

    def flush(self) -> None:
        """See `Client`."""
        self._wire.flush()

    def hold(self, size: int) -> None:
        """See `Client`."""
        most, before = self.front.limits.bytes_under_way, self._held
        self._held += size
        if before <= most < self._held:
            self._wire.pause()
        elif self._held <= most < before:
            self._wire.resume()

    def end(self, attached: Attached[Any], error: Exception) -> None:
        """See `Client`."""
        if self._links.pop(attached.link, None) is None:
            return
        told = refusal_of(error).error
        self.front.core.note_refusal(attached.node.path, error)
        if attached.is_accepted:
            attached.link.detach(told)
        else:
            attached.link.refuse(told)
        attached.ended()
        self.flush()

    def look_at(self, time: int) -> None:
        """See `Client`."""
        self.deadline = min(self.deadline, time)

    # From the server

    def check(self) -> None:
        """End the links that may not go on, because entities, tokens, keys or sessions are not what they were."""
        self.credentials.look_again()
        expires = self.credentials.expires_after(self.front.now())
        self.deadline = NEVER if expires is None else expires
        for attached in list(self._links.values()):
            try:
                attached.check()
            except Exception as error:
                self.end(attached, error)

    def close(self) -> None:
        """Ask the client to go."""
        self._connection.close(AmqpError(FORCED, "The server is shutting down. Please connect again later."))
        self.flush()

    def abort(self) -> None:
        """Cut the connection."""
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
