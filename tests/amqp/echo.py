"""A minimal broker over the engine: messages sent to an address are received from it, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import (
    CreditChanged,
    Delivered,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    SaslInit,
)
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.outcomes import Accepted, AmqpError, Released
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import Source, Target
from oncebus.protocols.servicebus.transport import AmqpProtocol, Wire
from tests.amqp.transports import on_transport
from tests.in_thread import in_thread as started_in_thread

CREDIT = 50


class Echo:
    """The state that all connections of one server share."""

    def __init__(self, *, trusts: bool = True) -> None:
        self.trusts = trusts
        self.queues: dict[str, deque[bytes]] = {}
        self.receivers: dict[str, list[tuple[OutgoingLink, Wire]]] = {}
        self.outcomes: list[object] = []
        self.events: list[Event] = []
        self.lost = 0
        self.protocols: list[AmqpProtocol] = []

    def queue(self, address: str) -> deque[bytes]:
        return self.queues.setdefault(address, deque())

    def hand_out(self, address: str) -> None:
        queue = self.queue(address)
        for link, wire in self.receivers.get(address, []):
            while queue and link.sendable:
                payload = queue.popleft()
                link.send(
                    payload, b"%d" % link.delivery_count, settled=link.attach.snd_settle_mode == 1, context=payload
                )
            wire.flush()
            if link.drain and not queue:
                link.answer_drain()


class EchoPeer:
    """One peer of the echo server."""

    def __init__(self, echo: Echo, connection: Connection, wire: Wire) -> None:
        self.echo = echo
        self.connection = connection
        self.wire = wire
        if echo.trusts:
            connection.trust()
        connection.largest_message = 8 * 1024 * 1024

    def on_events(self, events: list[Event]) -> None:
        self.echo.events += events
        received: dict[IncomingLink, list[Any]] = {}
        for event in events:
            if isinstance(event, SaslInit):
                self.connection.answer_sasl(event.response != b"\0user\0wrong")
            elif isinstance(event, LinkAttached):
                self.attach(event.link)
            elif isinstance(event, LinkDetached) and isinstance(event.link, OutgoingLink):
                self.forget(event.link)
            elif isinstance(event, Delivered):
                received.setdefault(event.link, []).append(event.delivery)
            elif isinstance(event, CreditChanged):
                self.echo.hand_out(event.link.context)
            elif isinstance(event, Disposed):
                self.dispose(event)
        for link, deliveries in received.items():
            link.settle(deliveries, Accepted())
            if link.credit < CREDIT // 2:
                link.grant(CREDIT)
            self.echo.queue(link.context).extend(delivery.payload for delivery in deliveries)
            self.echo.hand_out(link.context)

    def on_lost(self) -> None:
        self.echo.lost += 1

    def attach(self, link: Any) -> None:
        terminus = link.attach.source if isinstance(link, OutgoingLink) else link.attach.target
        assert isinstance(terminus, Source | Target)
        address = link.context = terminus.address or ""
        if address.startswith("no-"):
            link.refuse(AmqpError("amqp:not-found", f"The queue {address!r} does not exist."))
            return
        link.accept()
        if isinstance(link, IncomingLink):
            link.grant(CREDIT)
        else:
            self.echo.receivers.setdefault(address, []).append((link, self.wire))
            self.echo.hand_out(address)

    def forget(self, link: OutgoingLink) -> None:
        receivers = self.echo.receivers.get(link.context, [])
        receivers[:] = [it for it in receivers if it[0] is not link]

    def dispose(self, event: Disposed) -> None:
        self.echo.outcomes += [event.state] * len(event.deliveries)
        if isinstance(event.state, Released):
            self.echo.queue(event.link.context).extendleft(it.context for it in reversed(event.deliveries))
            self.echo.hand_out(event.link.context)
        if not event.settled and event.state is not None:
            event.link.settle(event.deliveries, event.state)


@contextlib.asynccontextmanager
async def serving(echo: Echo, **options: Any) -> Any:
    """Run an echo server on a free local port, and yield the port."""

    engine = {name: options[name] for name in ("max_frame_size", "idle_timeout_ms") if name in options}
    limits = {name: value for name, value in options.items() if name not in engine}

    def make() -> asyncio.Protocol:
        connection = Connection(container_id="echo", **engine)
        protocol = AmqpProtocol(connection, lambda c, w: EchoPeer(echo, c, w), **limits)
        echo.protocols.append(protocol)
        return on_transport(protocol)

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for protocol in echo.protocols:
            protocol.abort()
        await server.wait_closed()
        # An aborted transport notifies its protocol in the next iteration of the loop.
        await asyncio.sleep(0)


@contextlib.contextmanager
def in_thread(echo: Echo, **options: Any) -> Iterator[str]:
    """Run an echo server in its own thread, for blocking clients, and yield its address."""
    with started_in_thread(lambda: serving(echo, **options)) as port:
        yield f"127.0.0.1:{port}"
