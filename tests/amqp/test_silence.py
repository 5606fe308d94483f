"""Peers that send nothing: their network may be gone. The clock is the test's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.frames import AMQP_HEADER, HEARTBEAT
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.performatives import Attach, Close, Flow, Open
from oncebus.protocols.servicebus.transport import AmqpProtocol
from tests.amqp.client import OPEN, credit, kinds, receiver, written
from tests.amqp.echo import Echo, EchoPeer, serving
from tests.amqp.sockets import Socket, connected, until
from tests.amqp.transports import on_transport, websockets

IDLE_MS = 40
LONGEST = 2 * IDLE_MS / 1000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True, params=["tcp", "websocket"])
def _transport(request: pytest.FixtureRequest) -> Iterator[None]:
    with websockets() if request.param == "websocket" else contextlib.nullcontext():
        yield


async def is_answered(client: Socket) -> None:
    await client.say(written(credit(0, None, echo=True)))
    await client.expect(Flow)


def test_the_idle_time_out_is_announced() -> None:
    async def run() -> None:
        async with serving(Echo(), idle_timeout_ms=120_000) as port, connected(port) as client:
            await client.say(AMQP_HEADER, written(OPEN))
            assert await client.header() == AMQP_HEADER
            (opened,) = await client.expect(Open)
            assert opened.idle_time_out == 120_000

    asyncio.run(run())


def test_a_silent_peer_counts_as_lost_and_can_read_why() -> None:
    async def run() -> None:
        echo, clock = Echo(), Clock()
        async with (
            serving(echo, idle_timeout_ms=IDLE_MS, clock=clock, close_seconds=0.1) as port,
            connected(port) as client,
        ):
            await client.opened()
            await client.say(written(receiver()))
            await client.expect(Attach)
            clock.now += LONGEST
            (close,) = await client.expect(Close)
            reason = "The connection was inactive for more than the allowed 80 milliseconds."
            assert close.error == AmqpError("amqp:connection:forced", reason)
            # Its links end at once, without its answer.
            assert kinds(echo.events)[-3:] == ["LinkDetached", "SessionEnded", "Closed"]
            assert await client.end_of_stream() == b""
            await until(lambda: echo.lost == 1)

    asyncio.run(run())


def test_a_peer_stays_while_it_sends_heartbeats() -> None:
    async def run() -> None:
        clock = Clock()
        async with (
            serving(Echo(), idle_timeout_ms=IDLE_MS, clock=clock) as port,
            connected(port) as client,
            connected(port) as silent,
        ):
            await client.opened()
            await silent.opened()
            for _ in range(3):
                clock.now += 0.4 * LONGEST
                await client.say(HEARTBEAT)
                await is_answered(client)
            await silent.expect(Close)
            await is_answered(client)

    asyncio.run(run())


def test_a_peer_that_the_server_does_not_read_is_not_silent() -> None:
    async def run() -> None:
        echo, clock = Echo(), Clock()
        async with (
            serving(echo, idle_timeout_ms=IDLE_MS, clock=clock) as port,
            connected(port) as client,
            connected(port) as silent,
        ):
            await client.opened()
            echo.protocols[0].pause()
            await silent.opened()
            clock.now += LONGEST
            # The other peer's timer is the later one.
            await silent.expect(Close)
            echo.protocols[0].resume()
            await is_answered(client)

    asyncio.run(run())


def test_the_system_gives_up_an_unacknowledged_connection_no_earlier() -> None:
    class Seen(AmqpProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            found.append(transport)

    found: list[asyncio.BaseTransport] = []

    def make() -> asyncio.Protocol:
        connection = Connection(container_id="server", idle_timeout_ms=120_000)
        return on_transport(Seen(connection, lambda c, w: EchoPeer(Echo(), c, w)))

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        async with server, connected(server.sockets[0].getsockname()[1]) as client:
            await client.opened()
            own = found[0].get_extra_info("socket")
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 240_000

    asyncio.run(run())
