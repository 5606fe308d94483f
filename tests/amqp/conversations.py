"""Conversations of clients, random frames, and a server that answers them in random ways."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oncebus.amqp.connection import Connection
from oncebus.amqp.encoding import encode
from oncebus.amqp.events import (
    Closed,
    CreditChanged,
    Delivered,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    SaslInit,
    SessionBegun,
    SessionEnded,
)
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.link import Link
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, Rejected, Released
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import (
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Source,
    Transfer,
)
from oncebus.amqp.types import Array, Described, Symbol, ULong
from tests.amqp.client import BEGIN, OPEN, credit, frames, receiver, sender, transfer, written

ERROR = AmqpError("amqp:internal-error", "Words", {Symbol("a"): 1})
SASL = SASL_HEADER + frame(0, encode(Described(ULong(0x41), [Symbol("PLAIN"), b"\0u\0p", "host"])), SASL_FRAME)
FILTER: dict[Symbol, object] = {Symbol("f"): Described(Symbol("f"), [1, {Symbol("a"): Array(Symbol, ["b"])}])}

STEPS: list[list[bytes]] = [
    # Each step is sent after the server has handled the one before.
    [SASL],
    [AMQP_HEADER, written(OPEN), written(BEGIN), written(BEGIN, channel=3)],
    [
        written(sender("s", 0)),
        written(receiver("r", 1, source=Source("queue", filter=FILTER), snd_settle_mode=0, rcv_settle_mode=1)),
        written(credit(10, 1, echo=True)),
        written(sender("big", 7), channel=3),
    ],
    [
        *[written(transfer(number, delivery_tag=b"%d" % number), b"payload" * number) for number in range(8)],
        written(transfer(8, more=True), b"a" * 3000),
        written(transfer(0, 7, more=True), b"b" * 300, channel=3),
        written(Transfer(handle=0, more=True), b"a" * 3000),
        written(Transfer(handle=7, aborted=True), channel=3),
        written(Transfer(handle=0), b"a"),
        written(transfer(1, 7, settled=True, message_format=0x80013700), b"c", channel=3),
    ],
    [
        written(Disposition(role=True, first=0, last=2, state=Accepted())),
        written(Disposition(role=True, first=0, last=2**32 - 1, settled=True, state=Modified(True, False, None))),
        written(Disposition(role=False, first=0, last=9, settled=True)),
        written(credit(0, None, next_incoming_id=8, next_outgoing_id=15, echo=True)),
        written(credit(7, 1, delivery_count=8, next_incoming_id=8, drain=True)),
    ],
    [
        written(Detach(handle=0, closed=True)),
        written(Detach(handle=1)),
        written(sender("again", 0)),
        written(End(), channel=3),
    ],
    [written(Detach(handle=7), channel=3), written(End(error=ERROR)), written(Close())],
]
WHOLE = [b"".join(step) for step in STEPS]


class Server:
    """Answers the events of a connection in random ways, and checks the invariants."""

    def __init__(self, random: Random, connection: Connection) -> None:
        self.random = random
        self.connection = connection
        self.seen: list[Event] = []
        self.written = bytearray()
        self._attached: set[Link] = set()
        self._begun: set[Any] = set()
        self._is_closed = False

    def receive(self, *chunks: bytes) -> None:
        """Receive all chunks, then answer their events."""
        events = [event for chunk in chunks for event in self.connection.receive(chunk)]
        self.see(events)
        for event in events:
            self.answer(event)
        if any(isinstance(event, SaslInit) for event in events):
            self.receive(b"")
        self.check_limits()

    def see(self, events: list[Event]) -> None:
        for event in events:
            self.check(event)
        self.seen += events

    def check(self, event: Event) -> None:
        assert not self._is_closed
        if isinstance(event, SessionBegun):
            self._begun.add(event.session)
        elif isinstance(event, SessionEnded):
            self._begun.remove(event.session)
        elif isinstance(event, LinkAttached):
            assert event.link.session in self._begun
            self._attached.add(event.link)
        elif isinstance(event, LinkDetached):
            self._attached.remove(event.link)
            assert event.link.is_over
        elif isinstance(event, Delivered | CreditChanged | Disposed):
            assert event.link in self._attached
        elif isinstance(event, Closed):
            self._is_closed = True
            # A link that the server itself detached is not reported.
            assert not self._begun
            assert all(link.is_over for link in self._attached)

    def check_limits(self) -> None:
        connection = self.connection
        assert 0 <= connection.unfinished_bytes <= connection.most_unfinished_bytes
        assert connection.is_closed == self._is_closed or not self._attached
        assert connection.link_count == sum(session.link_count for session in connection.sessions)
        assert connection.link_count <= connection.most_links
        assert connection.out.unsettled == sum(len(session.outbound.unsettled) for session in connection.sessions)
        for session in connection.sessions:
            for link in session.links:
                assert -100 <= link.credit < 2**32
        if not connection.out.is_paused:
            self.drain()

    def drain(self) -> None:
        while True:
            self.written += b"".join(self.connection.output())
            self.see(self.connection.relieve())
            if not self.connection.has_output:
                break

    def frames(self) -> list[Any]:
        """Return all written frames. They must be well formed and not too long for the peer."""
        data = bytes(self.written)
        if data.startswith(SASL_HEADER):
            data = data[8:]
            while data[4:6] == b"\x02\x01":
                data = data[int.from_bytes(data[:4], "big") :]
        if not data:
            return []
        assert data.startswith(AMQP_HEADER)
        return frames(data[8:])

    def answer(self, event: Event) -> None:
        random = self.random
        if isinstance(event, SaslInit):
            self.connection.answer_sasl(random.random() < 0.98)
        elif isinstance(event, LinkAttached):
            self.attach(event.link)
        elif isinstance(event, Delivered):
            if random.random() < 0.9:
                outcomes: list[DeliveryState] = [Accepted(), Released(), Rejected(ERROR), Modified(True)]
                event.link.settle([event.delivery], random.choice(outcomes))
            if random.random() < 0.3:
                event.link.grant(random.choice([1, 10, 100]))
        elif isinstance(event, CreditChanged):
            link = event.link
            while link.sendable and random.random() < 0.8:
                link.send(random.randbytes(random.choice([0, 10, 2000])), b"t", settled=random.random() < 0.3)
            if random.random() < 0.7:
                link.answer_drain()
        elif isinstance(event, Disposed) and event.state is not None and random.random() < 0.9:
            event.link.settle(event.deliveries, event.state)
        if random.random() < 0.003:
            self.connection.close(ERROR)
        elif random.random() < 0.005 and isinstance(event, SessionBegun):
            event.session.end(ERROR)
        elif random.random() < 0.005 and isinstance(event, Delivered):
            event.link.detach(ERROR)

    def attach(self, link: Link) -> None:
        if self.random.random() < 0.1:
            link.refuse(ERROR)
        elif self.random.random() < 0.9:
            link.accept(max_message_size=self.random.choice([None, 100, 10_000]))
            if isinstance(link, IncomingLink):
                link.grant(self.random.choice([0, 1, 20]))
            elif isinstance(link, OutgoingLink):
                assert link.sendable <= link.credit


def shown(event: Event) -> object:
    """Return the content of an event without its objects, so that events can be compared."""
    match event:
        case SessionBegun():
            return "begun", event.session.remote_channel
        case SessionEnded():
            return "ended", event.session.remote_channel, event.error
        case LinkAttached():
            return "attached", event.link.attach
        case LinkDetached():
            return "detached", event.link.name, event.error, event.closed
        case Delivered():
            return "delivered", event.link.name, event.delivery
        case CreditChanged():
            return "credit", event.link.name
        case Disposed():
            return "disposed", event.link.name, [it.id for it in event.deliveries], event.state, event.settled
        case _:
            return event


def random_frame(random: Random) -> bytes:
    """Return a random frame, valid or not."""
    handle, channel = random.choice([0, 1, 2, 7, 255, 256]), random.choice([0, 0, 0, 1, 3, 300])
    number = random.choice([0, 1, 2, 5, 2**31, 2**32 - 1])
    flag = random.random() < 0.5
    makers: list[Callable[[], Performative]] = [
        lambda: BEGIN,
        lambda: Begin(next_outgoing_id=number, incoming_window=number, outgoing_window=0, handle_max=handle),
        lambda: sender(f"s{handle}", handle),
        lambda: receiver(f"r{handle}", handle, max_message_size=number),
        lambda: credit(number, random.choice([None, handle]), number, drain=flag, echo=not flag),
        lambda: credit(5, handle, 0, next_incoming_id=number, incoming_window=3),
        lambda: transfer(number, handle, more=flag),
        lambda: Transfer(handle=handle, more=flag, aborted=random.random() < 0.2),
        lambda: Disposition(role=flag, first=0, last=number, settled=not flag, state=Accepted()),
        lambda: Disposition(role=True, first=number, state=Rejected(ERROR)),
        lambda: Flow(incoming_window=number, next_outgoing_id=number, outgoing_window=1, echo=flag),
        lambda: Detach(handle=handle, closed=flag),
        lambda: End(error=ERROR if flag else None) if random.random() < 0.3 else BEGIN,
        lambda: Open(container_id="again") if random.random() < 0.05 else BEGIN,
        lambda: Close() if random.random() < 0.1 else credit(9, handle),
    ]
    made = random.choice(makers)()
    payload = random.randbytes(random.choice([0, 5, 400])) if isinstance(made, Transfer) else b""
    return written(made, payload, channel=channel)


def mutated(random: Random, data: bytes) -> bytes:
    """Return the bytes with a few of them changed, removed, inserted or repeated."""
    found = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 5])):
        at = random.randrange(len(found) + 1)
        match random.randrange(5):
            case 0 if at < len(found):
                found[at] ^= 1 << random.randrange(8)
            case 1 if at < len(found):
                found[at] = random.choice([0, 0x40, 0x45, 0x70, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF])
            case 2:
                del found[at : at + random.choice([1, 4, 50])]
            case 3:
                found[at:at] = random.randbytes(random.choice([1, 4, 50]))
            case _:
                end = at + random.choice([8, 30, 100])
                found[at:at] = found[at:end]
    return bytes(found)


def in_chunks(random: Random, data: bytes) -> list[bytes]:
    chunks, at = [], 0
    while at < len(data):
        size = random.choice([1, 3, 8, 20, 100, 5000])
        chunks.append(data[at : at + size])
        at += size
    return chunks
