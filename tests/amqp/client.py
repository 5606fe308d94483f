"""A client for an engine: writes frames and reads the engine's answers."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import Delivered, Event, LinkAttached, SessionBegun
from oncebus.amqp.frames import AMQP_HEADER, frame
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from oncebus.amqp.session import Session

T = TypeVar("T")


class Sent(NamedTuple):
    """A frame that the engine wrote."""

    channel: int
    performative: Any
    payload: bytes


OPEN = Open(container_id="client", max_frame_size=65536, channel_max=100)
BEGIN = Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=2048)


def written(performative: Performative, payload: bytes = b"", *, channel: int = 0) -> bytes:
    return frame(channel, encode_performative(performative) + payload)


def sender(name: str = "s", handle: int = 0, **fields: Any) -> Attach:
    """Return the attach of a client that sends."""
    fields = {"source": Source(), "target": Target("queue"), "initial_delivery_count": 0, **fields}
    return Attach(name=name, handle=handle, role=False, **fields)


def receiver(name: str = "r", handle: int = 0, **fields: Any) -> Attach:
    """Return the attach of a client that receives."""
    fields = {"source": Source("queue"), "target": Target(), **fields}
    return Attach(name=name, handle=handle, role=True, **fields)


def credit(credit: int, handle: int | None = 0, delivery_count: int = 0, **fields: Any) -> Flow:
    fields = {
        "next_incoming_id": 0,
        "incoming_window": 2048,
        "next_outgoing_id": 0,
        "outgoing_window": 2048,
        "handle": handle,
        "delivery_count": delivery_count,
        "link_credit": credit,
        **fields,
    }
    return Flow(**fields)


def transfer(delivery_id: int | None = 0, handle: int = 0, **fields: Any) -> Transfer:
    fields = {"delivery_tag": b"t", "message_format": 0, **fields}
    return Transfer(handle=handle, delivery_id=delivery_id, **fields)


def frames(data: bytes) -> list[Sent]:
    """Split bytes into AMQP frames; a heartbeat is None."""
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert data[4] == 2
        assert data[5] == 0
        body = data[8:size]
        performative, at = decode_performative(body, 0, len(body)) if body else (None, 0)
        found.append(Sent(int.from_bytes(data[6:8], "big"), performative, body[at:]))
        data = data[size:]
    return found


class Client:
    """Talks to one engine, without SASL. `do` returns the events of frames, `answers` the frames written since."""

    def __init__(self, opened: Open | None = OPEN, *, trusted: bool = True, **options: Any) -> None:
        self.connection = Connection(container_id="server", **options)
        if trusted:
            self.connection.trust()
        self.events: list[Event] = []
        if opened is not None:
            self.raw(AMQP_HEADER)
            self.do(opened)
            assert (
                self.take() == AMQP_HEADER + written(Open(container_id="server", max_frame_size=65536, channel_max=255))
                or options
            )

    def raw(self, data: bytes) -> list[Event]:
        events = self.connection.receive(data)
        self.events += events
        return events

    def do(self, *performatives: Performative, channel: int = 0) -> list[Event]:
        return self.raw(b"".join(written(performative, channel=channel) for performative in performatives))

    def send(self, body: Transfer, payload: bytes, *, channel: int = 0) -> list[Event]:
        return self.raw(written(body, payload, channel=channel))

    def take(self) -> bytes:
        return b"".join(self.connection.output())

    def answers(self) -> list[Sent]:
        return frames(self.take())

    def answer(self, kind: type[T]) -> T:
        """Return the only frame that the engine wrote, which must be of this kind."""
        (sent,) = self.answers()
        assert isinstance(sent.performative, kind)
        return sent.performative

    def begin(self, channel: int = 0, begin: Begin = BEGIN) -> Session:
        (event,) = self.do(begin, channel=channel)
        assert isinstance(event, SessionBegun)
        self.take()
        return event.session

    def incoming(self, grant: int = 100, *, channel: int = 0, **fields: Any) -> IncomingLink:
        """Return a link on which this client sends, accepted and with credit."""
        (event,) = self.do(sender(**fields), channel=channel)
        assert isinstance(event, LinkAttached)
        assert isinstance(event.link, IncomingLink)
        event.link.accept()
        event.link.grant(grant)
        self.take()
        return event.link

    def outgoing(self, grant: int = 100, *, channel: int = 0, handle: int = 0, **fields: Any) -> OutgoingLink:
        """Return a link on which this client receives, accepted and with credit."""
        (event,) = self.do(receiver(handle=handle, **fields), channel=channel)
        assert isinstance(event, LinkAttached)
        assert isinstance(event.link, OutgoingLink)
        event.link.accept()
        if grant:
            self.do(credit(grant, handle), channel=channel)
        self.take()
        return event.link


def deliveries(events: list[Event]) -> list[Delivery]:
    return [event.delivery for event in events if isinstance(event, Delivered)]


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]
