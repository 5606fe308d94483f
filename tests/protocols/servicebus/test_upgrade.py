"""The handshake of WebSockets at the HTTP port, by clients that send exact bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.performatives import Close, Open
from oncebus.amqp.types import Described, Symbol, ULong
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import HttpServer, listen, server
from oncebus.protocols.http import protocol as http_protocol
from oncebus.protocols.portal.hosts import Hosts
from oncebus.protocols.servicebus import AmqpLimits, ServiceBusServer, make_server
from oncebus.protocols.servicebus.upgrade import Upgrade
from tests.amqp.client import OPEN, written
from tests.amqp.framed import framed
from tests.amqp.sockets import PATIENCE, Socket, pass_time, until
from tests.broker.in_process import running_broker

from .bus import NAMESPACE, ROOT

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1(f"{KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
REQUEST = {
    "Host": "localhost",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Protocol": "AMQPWSB10",
}
PATH = "/$servicebus/websocket"
SASL = SASL_HEADER + frame(
    0,
    encode(Described(ULong(0x41), [Symbol("PLAIN"), f"\0{ROOT.name}\0{ROOT.primary_key}".encode()])),
    SASL_FRAME,
)
HEALTH = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(line: str = f"GET {PATH} HTTP/1.1", **changes: str | None) -> bytes:
    """Return a handshake. A header that is None is left out."""
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    headers = [f"{name}: {value}" for name, value in {**REQUEST, **named}.items() if value is not None]
    return "\r\n".join([line, *headers, "", ""]).encode()


@dataclass
class Place:
    """A server for HTTP and WebSockets."""

    amqp: ServiceBusServer
    http: HttpServer

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Socket]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http.port)
        try:
            yield Socket(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def websocket(self) -> AsyncIterator[Socket]:
        """Open a WebSocket."""
        async with self.connected() as client:
            await client.say(request())
            assert (await head(client)).startswith("HTTP/1.1 101 ")
            yield Socket(*framed(client.reader, client.writer))

    async def answer(self, data: bytes) -> str:
        """Return everything that is answered until the server disconnects."""
        async with self.connected() as client:
            await client.say(data)
            return (await client.end_of_stream()).decode()


async def head(client: Socket) -> str:
    """Return the head of the next response."""
    return (await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), PATIENCE)).decode()


async def signed_in(client: Socket) -> None:
    """Authenticate with SASL PLAIN, and open the connection."""
    await client.say(SASL)
    assert await client.header() == SASL_HEADER
    await client.raw_frame()
    await client.raw_frame()
    await client.opened()


def play(
    data: Path,
    scenario: Callable[[Place], Awaitable[None]],
    limits: AmqpLimits | None = None,
    foreign: Callable[[str, str | None], str | None] | None = None,
    most_connections: int = 100,
) -> None:
    """Run a scenario on its own servers."""

    async def run() -> None:
        async with running_broker(data, pipeline=False) as broker:
            bus = make_server(broker, namespace_rules=lambda: NAMESPACE, limits=limits)
            http = server(
                make_app(broker, namespace_rules=lambda: NAMESPACE),
                listen("127.0.0.1", 0),
                most_connections=most_connections,
                upgrade=Upgrade(bus.make_protocol, foreign),
            )
            await http.start()
            try:
                await scenario(Place(bus, http))
            finally:
                await asyncio.gather(http.stop(), bus.stop())

    asyncio.run(run())


def test_java_is_answered_as_it_wants(tmp_path: Path) -> None:
    """Java's client names the whole URL, wants the reason phrase, and has room for frames of 4096 bytes."""
    asked = (
        "GET https://localhost/$servicebus/websocket HTTP/1.1\r\n"
        "Connection: Upgrade,Keep-Alive\r\n"
        "Upgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {KEY}\r\n"
        "Sec-WebSocket-Protocol: AMQPWSB10\r\n"
        "Host: localhost\r\n"
        "\r\n"
    )

    async def scenario(place: Place) -> None:
        async with place.connected() as client:
            await client.say(asked.encode())
            first, *rest = (await head(client)).split("\r\n")
            assert first == "HTTP/1.1 101 Switching Protocols"
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest if line)}
            assert headers.pop("date")
            assert headers == {
                "upgrade": "websocket",
                "connection": "Upgrade",
                "sec-websocket-accept": ACCEPT,
                "sec-websocket-protocol": "AMQPWSB10",
            }
            await signed_in(Socket(*framed(client.reader, client.writer)))

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("AMQPWSB10", "AMQPWSB10"),
        ("amqp", "amqp"),
        ("amqp, AMQPWSB10", "amqp"),
        ("AMQPWSB10, amqp", "AMQPWSB10"),
        ("mqtt,amqp", "amqp"),
    ],
)
def test_the_first_known_subprotocol_is_chosen(tmp_path: Path, offered: str, chosen: str) -> None:
    async def scenario(place: Place) -> None:
        async with place.connected() as client:
            # Extensions are not used.
            await client.say(
                request(
                    Sec_WebSocket_Protocol=offered,
                    Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits",
                )
            )
            found = (await head(client)).lower()
            assert f"sec-websocket-protocol: {chosen.lower()}\r\n" in found
            assert "sec-websocket-extensions" not in found

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "path",
    [
        "/$servicebus/websocket/",
        "/%24servicebus/websocket",
        "/$ServiceBus/WebSocket",
        "/$servicebus/websocket?api-version=1",
        "http://somewhere:81/$servicebus/websocket/",
    ],
)
def test_the_path_may_be_written_in_several_ways(tmp_path: Path, path: str) -> None:
    async def scenario(place: Place) -> None:
        async with place.connected() as client:
            await client.say(request(f"GET {path} HTTP/1.1"))
            assert (await head(client)).startswith("HTTP/1.1 101 Switching Protocols\r\n")

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (request(Sec_WebSocket_Protocol=None), 400, "the subprotocol must be AMQPWSB10 or amqp"),
        (request(Sec_WebSocket_Protocol="mqtt"), 400, "the subprotocol must be AMQPWSB10 or amqp"),
        (request(Sec_WebSocket_Key=None), 400, "missing Sec-WebSocket-Key header"),
        (request(Sec_WebSocket_Key="c2hvcnQ="), 400, "invalid Sec-WebSocket-Key header"),
        (request(Sec_WebSocket_Version="8"), 400, "invalid Sec-WebSocket-Version header"),
        (request(Upgrade="h2c"), 426, "invalid Upgrade header"),
        (request(Connection="close, upgrade", Upgrade=None), 401, ""),
        (request(Connection="close"), 401, ""),
        (request(f"POST {PATH} HTTP/1.1", Connection="close, upgrade"), 401, ""),
        (request(f"GET {PATH} HTTP/1.0", Connection="close, upgrade"), 401, ""),
        (request("GET /$servicebus HTTP/1.1", Connection="close, upgrade"), 401, ""),
        (request("GET /health/live HTTP/1.1", Connection="close, upgrade"), 200, ""),
        (request(Connection="close, upgrade", Content_Length="1") + b"x", 400, "without the header Upgrade"),
        (
            request("POST /orders/messages HTTP/1.1", Upgrade="h2c", Content_Length="1") + b"x",
            400,
            "without the header",
        ),
    ],
)
def test_other_requests_are_refused_or_answered_as_usual(tmp_path: Path, asked: bytes, status: int, text: str) -> None:
    async def scenario(place: Place) -> None:
        found = await place.answer(asked)
        assert found.startswith(f"HTTP/1.1 {status} ")
        assert text in found
        assert place.amqp.counts.connections_total == 0

    play(tmp_path, scenario)


def test_a_handshake_may_come_byte_by_byte_or_with_the_first_frames_behind_it(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with place.connected() as slow, place.connected() as quick:
            for byte in request():
                await slow.say(bytes([byte]))
                await asyncio.sleep(0)
            assert (await head(slow)).startswith("HTTP/1.1 101 ")
            await signed_in(Socket(*framed(slow.reader, slow.writer)))

            # A frame with a zero mask.
            await quick.say(request() + b"\x82" + bytes([0x80 | len(AMQP_HEADER)]) + bytes(4) + AMQP_HEADER)
            assert (await head(quick)).startswith("HTTP/1.1 101 ")
            assert await Socket(*framed(quick.reader, quick.writer)).header() == AMQP_HEADER

    play(tmp_path, scenario)


def test_a_connection_may_be_used_for_requests_first(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with place.connected() as client:
            for _ in range(2):
                await client.say(HEALTH)
                assert (await head(client)).startswith("HTTP/1.1 200 ")
                await client.reader.readuntil(b"}")
            await client.say(request())
            assert (await head(client)).startswith("HTTP/1.1 101 ")
            await signed_in(Socket(*framed(client.reader, client.writer)))

    play(tmp_path, scenario)


def test_a_handshake_behind_a_request_without_a_response_is_an_ordinary_request(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        found = await place.answer(HEALTH + request(Connection="close, upgrade"))
        assert found.startswith("HTTP/1.1 200 ")
        assert "HTTP/1.1 401 " in found
        assert "HTTP/1.1 101 " not in found

    play(tmp_path, scenario)


def test_half_a_handshake_has_the_time_of_any_request(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        # After a whole handshake, that time no longer counts.
        async with place.connected() as half, place.websocket() as whole:
            await half.say(request()[:-2])
            await signed_in(whole)
            pass_time(http_protocol.HEAD_SECONDS)
            assert await half.end_of_stream() == b""
            await whole.say(written(Close()))
            await whole.expect(Close)

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("host", "origin", "is_allowed"),
    [
        ("localhost:5300", None, True),
        ("127.0.0.1", "http://localhost:3000", True),
        ("evil.example", None, False),
        ("localhost", "https://evil.example", False),
        ("localhost", "null", False),
        ("127.0.0.1:5300", "http://[::1]:3000", True),
        ("localhost:5300", "http://203.0.113.5", False),
        ("localhost:5300", "http://[2001:db8::1]:3000", False),
        ("192.168.7.8:5300", "http://192.168.7.8:3000", True),
        ("192.168.7.8:5300", "http://192.168.7.9:3000", False),
    ],
)
def test_pages_of_other_sites_may_be_refused(tmp_path: Path, host: str, origin: str | None, is_allowed: bool) -> None:
    async def scenario(place: Place) -> None:
        async with place.connected() as client:
            await client.say(request(Host=host, Origin=origin))
            assert (await head(client)).startswith("HTTP/1.1 101 " if is_allowed else "HTTP/1.1 421 ")

    play(tmp_path, scenario, foreign=Hosts().foreign)


def test_a_websocket_takes_a_place_of_amqp_and_none_of_http(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with contextlib.AsyncExitStack() as stack:
            many = [await stack.enter_async_context(place.websocket()) for _ in range(5)]
            for client in many:
                await signed_in(client)
            assert place.amqp.counts.connections == 5
            assert not place.http.server_state.connections
            # Two connections are all that HTTP may have.
            async with place.connected() as one, place.connected() as two:
                for client in (one, two):
                    await client.say(HEALTH)
                    assert (await head(client)).startswith("HTTP/1.1 200 ")
        await until(lambda: place.amqp.counts.connections == 0)

    play(tmp_path, scenario, most_connections=2)


def test_of_too_many_strangers_the_oldest_is_closed(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with contextlib.AsyncExitStack() as stack:
            known = await stack.enter_async_context(place.websocket())
            await signed_in(known)
            strangers = [await stack.enter_async_context(place.websocket()) for _ in range(10)]
            for client in strangers[:7]:
                assert await client.end_of_stream() == b""
            for client in strangers[7:]:
                await client.say(AMQP_HEADER)
                assert await client.header() == AMQP_HEADER
            assert place.amqp.counts.connections == 4

    play(tmp_path, scenario, AmqpLimits(strangers=3))


def test_clients_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with place.websocket() as one, place.websocket() as two:
            await signed_in(one)
            await two.say(SASL)
            assert await two.header() == SASL_HEADER
            await two.raw_frame()
            await two.raw_frame()
            await two.say(AMQP_HEADER, written(OPEN))
            assert await two.header() == AMQP_HEADER
            _, close = await two.expect(Open, Close)
            assert close.error.description == "The namespace already has 1 connections."

    play(tmp_path, scenario, AmqpLimits(connections=1))


def test_the_server_closes_websockets_when_it_stops(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        async with place.websocket() as client:
            await signed_in(client)
            stopping = asyncio.gather(place.http.stop(), place.amqp.stop())
            (close,) = await client.expect(Close)
            assert close.error.condition == "amqp:connection:forced"
            await client.say(written(Close()))
            assert await client.end_of_stream() == b""
            await stopping

    play(tmp_path, scenario)
