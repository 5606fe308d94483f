"""Places limit connections, and TLS begins only when a connection is counted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncebus.broker.clock import wall_time
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.programs.serve.descriptors import LEAST_CONNECTIONS, RESERVED_DESCRIPTORS, connection_limits
from oncebus.protocols import listening
from oncebus.protocols.http import listen
from oncebus.protocols.listening import SECONDS_BETWEEN_WARNINGS, STRANGERS_PART, FirstBytes, Places, serve

PATIENCE = 60


class Guest:
    def __init__(self, places: Places) -> None:
        self.is_cut = False
        self._places = places
        places.enter(self)

    def abort(self) -> None:
        self.is_cut = True
        self._places.leave(self)


def test_a_new_connection_closes_the_longest_idle_one() -> None:
    places = Places(3, "guests")
    one, two, three = (Guest(places) for _ in range(3))
    places.begin(one)
    places.begin(two)
    places.end(two)
    four = Guest(places)
    assert [each.is_cut for each in (one, two, three, four)] == [False, False, True, False]
    five = Guest(places)
    assert two.is_cut
    assert len(places) == 3
    for each in (four, five):
        places.begin(each)
    six = Guest(places)
    # Nobody can give way, so the new one is beyond the limit.
    assert len(places) == 4
    assert not any(each.is_cut for each in (one, four, five, six))
    places.leave(six)
    places.leave(one)
    Guest(places)
    assert len(places) == 3


def test_authenticated_connections_are_replaced_last() -> None:
    places = Places(3, "guests")
    known, stranger, other = (Guest(places) for _ in range(3))
    places.know(known, "key")
    places.begin(other)
    places.know(other, "key")
    places.end(other)
    later = Guest(places)
    assert [each.is_cut for each in (known, stranger, other, later)] == [False, True, False, False]
    places.begin(later)
    newest = Guest(places)
    assert (known.is_cut, other.is_cut, newest.is_cut) == (True, False, False)
    # Its key is forgotten with its place.
    assert places.know(known, "key")
    places.end(later)
    Guest(places)
    assert [each.is_cut for each in (other, later, newest)] == [False, False, True]


def test_the_key_with_the_most_connections_gives_way() -> None:
    places = Places(5, "guests")
    few, *many = (Guest(places) for _ in range(5))
    places.know(few, "few")
    asked: list[Guest] = []
    for each in many:
        places.know(each, "many")
        places.begin(each)
    # They wait for something, and can be asked to stop.
    for each in many[:3]:
        places.end(each, lambda each=each: asked.append(each))  # type: ignore[misc]
    newest = [Guest(places) for _ in range(2)]
    # The one that waits longest was asked. The new one has not authenticated, so it gave way to the next.
    assert (asked, [each.is_cut for each in newest]) == (many[:1], [True, False])
    places.know(newest[1], "new")
    places.begin(newest[1])
    Guest(places)
    assert asked == many[:2]
    assert not any(each.is_cut for each in (few, *many))
    # One that is busy again is not asked.
    places.begin(many[2])
    places.begin(few)
    assert len(places) == 5


def test_a_few_connections_that_have_not_authenticated_yet_may_stay() -> None:
    places = Places(STRANGERS_PART * 2, "guests")
    known = [Guest(places) for _ in range(STRANGERS_PART * 2 - 1)]
    for each in known:
        places.know(each, "many")
    strangers = [Guest(places) for _ in range(4)]
    assert [each.is_cut for each in known[:3]] == [True, True, False]
    assert [each.is_cut for each in strangers] == [True, False, False, False]


def test_beyond_the_limit_only_keys_with_few_connections_are_welcome() -> None:
    places = Places(4, "guests")
    many = [Guest(places) for _ in range(4)]
    for each in many:
        places.know(each, "many")
        places.begin(each)
    other, another = Guest(places), Guest(places)
    assert len(places) == 5, "the first one of these gave way to the second"
    assert places.know(another, "few")
    places.begin(another)
    one_more = Guest(places)
    assert not places.know(one_more, "many")
    assert other.is_cut
    places.leave(many[0])
    places.leave(many[1])
    assert places.know(one_more, "many"), "it is within the limit now"


def test_the_limit_is_logged_only_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    places = Places(1, "guests", lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            Guest(places)
        assert len(caplog.records) == 1
        now += SECONDS_BETWEEN_WARNINGS
        Guest(places)
        Guest(places)
    assert len(caplog.records) == 2


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def server_context(folder: Path) -> ssl.SSLContext:
    made = own_certificate(folder, "localhost", wall_time())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    return context


@contextlib.asynccontextmanager
async def echoing(folder: Path, places: Places) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0)
    server = await serve(listener, Echo, server_context(folder), places)
    yield listener.getsockname()[1]
    server.close()


def test_connections_that_never_begin_tls_are_closed_and_others_get_through(tmp_path: Path) -> None:
    async def play() -> None:
        places = Places(5, "strangers")
        async with echoing(tmp_path, places) as port:
            with contextlib.ExitStack() as stack:
                silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
                silent[0].settimeout(PATIENCE)
                # The oldest is closed at once, not after a minute.
                assert await asyncio.to_thread(silent[0].recv, 1) == b""
                trusting = ssl.create_default_context(cafile=tmp_path / CERTIFICATE)
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
                )
                # Data right after the handshake must reach a protocol that already has its transport.
                writer.write(b"hello" * 20_000)
                assert await asyncio.wait_for(reader.readexactly(100_000), PATIENCE) == b"hello" * 20_000
                assert len(places) <= 5
                writer.close()
                await writer.wait_closed()
            async with asyncio.timeout(PATIENCE):
                while len(places):
                    await asyncio.sleep(0.01)

    asyncio.run(play())


class Speaking(asyncio.Protocol):
    """Takes a place, and is busy once it has received data. `events` counts connections that were made and lost."""

    def __init__(self, places: Places, events: Counter[str]) -> None:
        self._places = places
        self._events = events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._events["made"] += 1
        self._places.enter(self)

    def data_received(self, data: bytes) -> None:
        self._places.begin(self)
        self._transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._events["lost"] += 1
        self._places.leave(self)

    def abort(self) -> None:
        self._transport.abort()


def test_a_crowd_does_not_replace_a_client_before_its_first_bytes() -> None:
    async def play() -> None:
        places, events = Places(32, "guests"), Counter[str]()
        with listen("127.0.0.1", 0) as listener, contextlib.ExitStack() as stack:
            listener.listen(1024)
            address = listener.getsockname()
            for _ in range(100):
                stack.enter_context(socket.create_connection(address, PATIENCE))
            client = stack.enter_context(socket.create_connection(address, PATIENCE))
            client.sendall(b"hello")
            for _ in range(200):
                stack.enter_context(socket.create_connection(address, PATIENCE))
            async with await serve(listener, lambda: Speaking(places, events), places=places):
                heard = await asyncio.to_thread(client.recv, 5)
                stack.close()
                async with asyncio.timeout(PATIENCE):
                    while events != {"made": 301, "lost": 301}:
                        await asyncio.sleep(0.01)
            assert heard == b"hello"

    asyncio.run(play())


@pytest.mark.parametrize("descriptors", [20, 256, 300, 1024, 4096, 9255, 9256, 65536])
def test_the_limits_of_connections_leave_descriptors_for_the_rest(descriptors: int) -> None:
    found = connection_limits(descriptors)
    assert all(each >= LEAST_CONNECTIONS for each in found)
    if descriptors >= 1024:
        assert sum(found) + RESERVED_DESCRIPTORS <= descriptors
    assert (found == connection_limits(1 << 30)) == (descriptors >= 9256)


class Named(asyncio.Protocol):
    """Says its name, then repeats everything."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._name)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@contextlib.asynccontextmanager
async def two_protocols(places: Places, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    def make() -> FirstBytes:
        return FirstBytes(b"AMQP", lambda: Named(b"one:"), lambda: Named(b"other:"), places)

    with listen("127.0.0.1", 0) as listener:
        async with await serve(listener, make, tls, places):
            yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"AMQP\x03\x01\x00\x00", b"one:"),
        (b"AMQP", b"one:"),
        (b"GET / HTTP/1.1\r\n", b"other:"),
        (b"AMQ", None),
        (b"AMQx", b"other:"),
        (b"ACL", b"other:"),
        (b"\x16\x03\x01", b"other:"),
        (b"\r\n", b"other:"),
        (b"amqp", b"other:"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "tls"])
def test_the_first_bytes_choose_the_protocol(
    tmp_path: Path, first: bytes, name: bytes | None, at_once: bool, is_encrypted: bool
) -> None:
    async def play() -> None:
        places = Places(5, "strangers")
        context = server_context(tmp_path) if is_encrypted else None
        async with two_protocols(places, context) as port:
            trusting = ssl.create_default_context(cafile=tmp_path / CERTIFICATE) if is_encrypted else None
            host = "localhost" if is_encrypted else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=host)
            for piece in [first] if at_once else [bytes([byte]) for byte in first]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if name is None:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
                assert len(places) == 1
                writer.write(b"P")
            expected = (name or b"one:") + first + (b"P" if name is None else b"")
            assert await asyncio.wait_for(reader.readexactly(len(expected)), PATIENCE) == expected
            # From now on the protocol takes a place itself, if it wants one.
            assert len(places) == 0
            writer.close()
            await writer.wait_closed()

    asyncio.run(play())


def test_connections_that_never_choose_a_protocol_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        places = Places(3, "strangers")
        async with two_protocols(places) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            for _, writer in silent:
                writer.write(b"AM")
            for reader, _ in silent[:2]:
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            assert len(places) == 3
            for _, writer in silent[2:4]:
                writer.close()
            async with asyncio.timeout(PATIENCE):
                while len(places) > 1:
                    await asyncio.sleep(0.01)
            places.close()
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(silent[4][0].read(), PATIENCE) == b""
            monkeypatch.setattr(listening, "FIRST_BYTES_SECONDS", 0.05)
            late, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(late.read(), PATIENCE) == b""
            for _, each in [*silent, (late, writer)]:
                each.close()
            assert len(places) == 0

    asyncio.run(play())


def test_a_peer_that_vanished_is_noticed_by_the_system() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
            found = [accepted.getsockopt(socket.IPPROTO_TCP, each) for each in options]
            assert found == [30, 5, 50_000]
