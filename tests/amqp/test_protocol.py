"""The engine over asyncio and real sockets, plain and as WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.events import Event, LinkAttached, SaslInit
from oncebus.amqp.frames import AMQP_HEADER, HEARTBEAT, SASL_HEADER
from oncebus.amqp.incoming import IncomingLink
from oncebus.amqp.limits import HANDSHAKE_SECONDS
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import Attach, Begin, Close, Disposition, End, Flow, Open, Transfer
from oncebus.protocols.servicebus.transport import AmqpProtocol, Wire
from tests.amqp.client import BEGIN, OPEN, credit, kinds, receiver, sender, transfer, written
from tests.amqp.conversations import SASL
from tests.amqp.echo import Echo, serving
from tests.amqp.sockets import PATIENCE, connected, pass_time, until
from tests.amqp.transports import on_transport, websockets

PLENTY = 2**31 - 1


@pytest.fixture(autouse=True, params=["tcp", "websocket"])
def _transport(request: pytest.FixtureRequest) -> Iterator[None]:
    with websockets() if request.param == "websocket" else contextlib.nullcontext():
        yield


def test_a_conversation_works_over_a_socket_in_any_chunks() -> None:
    async def run() -> None:
        echo = Echo()
        async with serving(echo) as port, connected(port) as client:
            everything = b"".join(
                [
                    SASL,
                    AMQP_HEADER,
                    written(OPEN),
                    written(BEGIN),
                    written(sender("s", 0)),
                    written(receiver("r", 1)),
                    written(credit(10, 1)),
                ]
            )
            for at in range(0, len(everything), 7):
                await client.say(everything[at : at + 7])
            assert await client.header() == SASL_HEADER
            await client.raw_frame()
            await client.raw_frame()
            assert await client.header() == AMQP_HEADER
            await client.expect(Open, Begin, Attach, Flow, Attach)
            await client.say(written(transfer(0), b"hello"))
            found = [await client.frame(), await client.frame()]
            by_kind = {type(it.performative): it for it in found}
            assert by_kind[Transfer].payload == b"hello"
            assert by_kind[Disposition].performative.settled
            await client.say(written(Close()))
            await client.expect(Close)
            assert await client.end_of_stream() == b""
            await until(lambda: echo.lost == 1)
            assert kinds(echo.events)[-4:] == ["LinkDetached", "LinkDetached", "SessionEnded", "Closed"]

    asyncio.run(run())


def test_a_peer_that_does_not_authenticate_in_time_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        trusting, doubting = Echo(), Echo(trusts=False)
        async with (
            serving(trusting) as port,
            serving(doubting) as other,
            connected(port) as trusted,
            connected(other) as untrusted,
            connected(other) as silent,
        ):
            await trusted.opened()
            await untrusted.opened()
            pass_time(HANDSHAKE_SECONDS)
            assert await untrusted.end_of_stream() == b""
            assert await silent.end_of_stream() == b""
            await until(lambda: doubting.lost == 2)
            # Its own deadline has passed too.
            await trusted.say(written(credit(0, None, echo=True)))
            await trusted.expect(Flow)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == [
        "Disconnecting a peer that did not authenticate in time"
    ] * 2


def test_a_violation_is_reported_to_the_peer_before_the_connection_ends() -> None:
    async def run() -> None:
        echo = Echo()
        async with serving(echo) as port, connected(port) as client:
            await client.opened()
            # The peer sends more than the server reads, and must still get the answer.
            await client.say(b"\xff" * 200_000)
            (close,) = await client.expect(Close)
            assert close.error.condition == "amqp:connection:framing-error"
            assert await client.end_of_stream() == b""
        await until(lambda: echo.lost == 1)
        assert kinds(echo.events)[-2:] == ["SessionEnded", "Closed"]

    asyncio.run(run())


def test_a_peer_with_another_protocol_gets_our_header() -> None:
    async def run() -> None:
        async with serving(Echo()) as port, connected(port) as client:
            await client.say(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert await client.end_of_stream() == SASL_HEADER

    asyncio.run(run())


def test_a_lost_peer_is_reported_once() -> None:
    async def run() -> None:
        echo = Echo()
        async with serving(echo) as port:
            async with connected(port) as client:
                await client.opened()
                await client.say(written(receiver()))
                await client.expect(Attach)
            await until(lambda: echo.lost == 1)
            assert kinds(echo.events) == [
                "Opened",
                "SessionBegun",
                "LinkAttached",
                "LinkDetached",
                "SessionEnded",
                "Closed",
            ]

    asyncio.run(run())


def test_a_peer_that_does_not_read_does_not_delay_others() -> None:
    async def run() -> None:
        echo = Echo()
        count, size = 400, 50_000
        wide = Begin(next_outgoing_id=0, incoming_window=PLENTY, outgoing_window=PLENTY)
        async with serving(echo) as port, connected(port) as slow, connected(port) as quick:
            await slow.opened(begin=wide)
            await slow.say(written(receiver()))
            await slow.expect(Attach)
            link = echo.receivers["queue"][0][0]
            echo.queue("queue").extend(number.to_bytes(4, "big") * (size // 4) for number in range(count))
            await slow.say(written(credit(count, 0, incoming_window=PLENTY)))
            await until(lambda: not echo.protocols[0].is_writable)
            assert link.sendable == 0
            waiting = len(echo.queue("queue"))
            assert waiting > count // 4

            await quick.opened()
            await quick.say(written(sender("s", 0)), written(receiver("r", 1)))
            await quick.expect(Attach, Flow, Attach)
            assert len(echo.queue("queue")) == waiting

            payloads: list[int] = []
            received = b""
            while len(payloads) < count:
                sent = await slow.frame()
                received += sent.payload
                if not sent.performative.more:
                    payloads.append(int.from_bytes(received[:4], "big"))
                    received = b""
            assert payloads == list(range(count))

    asyncio.run(run())


def test_a_peer_that_keeps_asking_but_does_not_read_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        echo = Echo()
        async with serving(echo, most_waiting_bytes=500_000) as port, connected(port) as client:
            await client.opened()
            question = written(credit(0, None, echo=True)) * 1000
            with contextlib.suppress(ConnectionError):
                while echo.lost == 0:
                    await asyncio.wait_for(client.say(question), PATIENCE)
            await until(lambda: echo.lost == 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["Disconnecting a peer that does not read"]


def test_heartbeats_are_written_to_a_peer_that_asks_for_them() -> None:
    async def run() -> None:
        async with serving(Echo()) as port, connected(port) as client:
            await client.say(AMQP_HEADER, written(Open(container_id="c", idle_time_out=300)))
            assert await client.header() == AMQP_HEADER
            await client.expect(Open)
            for _ in range(3):
                assert await client.raw_frame() == HEARTBEAT

    asyncio.run(run())


class Scripted:
    """A peer that runs the script of a test."""

    def __init__(self, connection: Connection, wire: Wire) -> None:
        connection.trust()
        self.connection = connection
        self.wire = wire
        self.events: list[Event] = []
        self.log: list[str] = []
        self.react: Callable[[list[Event]], None] = lambda events: None

    def on_events(self, events: list[Event]) -> None:
        self.events += events
        self.log += kinds(events)
        self.react(events)

    def on_lost(self) -> None:
        self.log.append("lost")


@contextlib.asynccontextmanager
async def scripted(**options: Any) -> AsyncIterator[tuple[int, list[Scripted]]]:
    peers: list[Scripted] = []

    def make_peer(connection: Connection, wire: Wire) -> Scripted:
        peers.append(Scripted(connection, wire))
        return peers[-1]

    def make() -> asyncio.Protocol:
        return on_transport(AmqpProtocol(Connection(container_id="server"), make_peer, **options))

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        server.close()
        for peer in peers:
            peer.wire.abort()
        await until(lambda: all("lost" in peer.log for peer in peers))
        await server.wait_closed()


def test_an_error_in_the_peer_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(events: list[Event]) -> None:
        if isinstance(events[0], LinkAttached):
            raise RuntimeError("a mistake")

    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.opened()
            peers[0].react = fail
            await client.say(written(sender()))
            (close,) = await client.expect(Close)
            assert close.error == AmqpError("amqp:internal-error", "The server had an internal error.")
            await client.say(written(Close()))
            assert await client.end_of_stream() == b""
            await until(lambda: "lost" in peers[0].log)
            assert peers[0].log[-4:] == ["LinkDetached", "SessionEnded", "Closed", "lost"]

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["Failed to handle events from a peer"]


def test_a_connection_that_cannot_be_set_up_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    def fail(connection: Connection, wire: Wire) -> Scripted:
        raise RuntimeError("a mistake")

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: on_transport(AmqpProtocol(Connection(container_id="server"), fail)), "127.0.0.1", 0
        )
        async with server, connected(server.sockets[0].getsockname()[1]) as client:
            assert await client.end_of_stream() == b""

    asyncio.run(run())
    assert [record.message for record in caplog.records] == ["Failed to set up a connection"]


def test_a_peer_that_does_not_answer_a_close_is_disconnected() -> None:
    async def run() -> None:
        async with scripted(close_seconds=0.05) as (port, peers), connected(port) as client:
            await client.opened()
            peers[0].connection.close(AmqpError("amqp:connection:forced", "The server stops."))
            peers[0].wire.flush()
            (close,) = await client.expect(Close)
            assert close.error.condition == "amqp:connection:forced"
            assert await client.end_of_stream() == b""
            await until(lambda: peers[0].log[-3:] == ["SessionEnded", "Closed", "lost"])

    asyncio.run(run())


def test_a_peer_that_keeps_sending_after_a_violation_is_disconnected() -> None:
    async def run() -> None:
        async with scripted(close_seconds=0.05) as (port, peers), connected(port) as client:
            await client.opened()
            await client.say(written(OPEN))
            await client.expect(Close)
            with contextlib.suppress(ConnectionError):
                while "lost" not in peers[0].log:
                    await client.say(HEARTBEAT)
                    await asyncio.sleep(0.005)
            assert peers[0].log[-3:] == ["SessionEnded", "Closed", "lost"]

    asyncio.run(run())


def test_sasl_may_be_answered_later() -> None:
    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.say(SASL, AMQP_HEADER, written(OPEN))
            assert await client.header() == SASL_HEADER
            await client.raw_frame()
            await until(lambda: peers[0].log == ["SaslInit"])
            assert isinstance(peers[0].events[0], SaslInit)
            peers[0].connection.answer_sasl(True)
            peers[0].wire.flush()
            peers[0].wire.flush()
            await client.raw_frame()
            assert await client.header() == AMQP_HEADER
            await client.expect(Open)

    asyncio.run(run())


def test_a_link_may_be_answered_later() -> None:
    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.opened()
            await client.say(written(receiver()), written(credit(3)))
            await until(lambda: peers[0].log[-1] == "CreditChanged")
            attached = peers[0].events[-2]
            assert isinstance(attached, LinkAttached)
            link = attached.link
            assert isinstance(link, OutgoingLink)
            link.accept()
            link.send(b"x", b"t", settled=True)
            peers[0].wire.flush()
            await client.expect(Attach, Transfer)
            assert peers[0].wire.remote.startswith("127.0.0.1:")

    asyncio.run(run())


def test_a_peer_that_does_not_read_answers_is_disconnected_but_a_slow_reader_of_deliveries_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.opened(begin=Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=9))
            await client.say(written(receiver()), written(credit(10, incoming_window=0)))
            await until(lambda: peers[0].log[-1] == "CreditChanged")
            attached = peers[0].events[-2]
            assert isinstance(attached, LinkAttached)
            assert isinstance(attached.link, OutgoingLink)
            attached.link.accept()
            peers[0].connection.most_unfinished_bytes = 1000
            attached.link.send(bytes(5000), b"delivery", settled=True)
            for _ in range(2):
                attached.link.send(bytes(1000), b"answer", settled=True, beyond_credit=True)
            peers[0].wire.flush()
            await client.expect(Attach)
            assert peers[0].log[-1] != "lost"
            attached.link.send(b"x", b"answer", settled=True, beyond_credit=True)
            peers[0].wire.flush()
            await until(lambda: peers[0].log[-1] == "lost")
            assert peers[0].connection.out.held == 0

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["Disconnecting a peer that does not read"]


def test_reading_may_be_paused_and_resumed() -> None:
    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.opened()
            wire = peers[0].wire
            wire.pause()
            wire.pause()
            await client.say(written(End()))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.reader.read(1), 0.05)
            assert peers[0].log[-1] == "SessionBegun"
            wire.resume()
            wire.resume()
            await client.expect(End)

    asyncio.run(run())


def test_a_link_gets_credit_over_a_socket() -> None:
    def accept(events: list[Event]) -> None:
        for event in events:
            if isinstance(event, LinkAttached) and isinstance(event.link, IncomingLink):
                event.link.accept()
                event.link.grant(7)

    async def run() -> None:
        async with scripted() as (port, peers), connected(port) as client:
            await client.opened()
            peers[0].react = accept
            await client.say(written(sender()))
            _, flow = await client.expect(Attach, Flow)
            assert flow.link_credit == 7

    asyncio.run(run())
