"""The application behind a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.model.entities import Tier
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import CannotListen, HttpServer, Tls, listen, server
from oncebus.protocols.http import protocol as http_protocol
from oncebus.protocols.http.protocol import LONGEST_HEAD, MOST_HEADERS, MOST_PIPELINED, Protocol
from tests.protocols.http.http_front import HOST, LISTENER, ROOT, Front, scenario, token

Play = Callable[[Front, HttpServer, httpx.AsyncClient], Awaitable[None]]
PATIENCE = 60.0
"""How long a response may take on a busy machine."""


def served(data: Path, play: Play, **options: object) -> None:
    async def run(front: Front) -> None:
        running = server(front.app, listen("127.0.0.1", 0))
        await running.start()
        try:
            headers = {"Authorization": token(front.time)}
            base = f"http://127.0.0.1:{running.port}"
            async with httpx.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE) as client:
                await play(front, running, client)
        finally:
            await running.stop()

    scenario(data, run, **options)


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_message_goes_round_with_the_names_of_its_properties_as_they_were_written(tmp_path: Path) -> None:
    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        await front.queue("region/orders")
        sent = await client.post(
            "/region/orders/messages",
            content=b"hello",
            headers={"BrokerProperties": '{"MessageId":"1/2"}', "My-Priority": '"High"'},
        )
        assert sent.status_code == 201
        await front.broker.counts("region/orders")
        (peeked,) = await front.broker.peek(Address("region/orders"), 0, 10)
        assert amqp.application_properties(peeked.message.head) == {"My-Priority": "High"}
        held = await client.post("/region%2Forders/messages/head?timeout=5")
        assert (held.status_code, held.content, held.headers["my-priority"]) == (201, b"hello", '"High"')
        assert (await client.delete(held.headers["location"])).status_code == 200
        empty = await client.delete("/region/orders/messages/head?timeout=0")
        assert (empty.status_code, empty.content) == (204, b"")
        assert "server" not in empty.headers

    served(tmp_path, play)


def test_bodies_are_streamed_and_those_too_large_are_refused_before_they_are_read(tmp_path: Path) -> None:
    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        await front.queue(max_message_size_in_kilobytes=4096)
        body = bytes(3 << 20)

        async def pieces() -> object:
            for at in range(0, len(body), 1 << 16):
                yield body[at : at + (1 << 16)]

        assert (await client.post("/orders/messages", content=pieces())).status_code == 201  # type: ignore[arg-type]
        assert (await client.delete("/orders/messages/head?timeout=5")).content == body
        head = f"POST /orders/messages HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {token(front.time)}\r\n"
        announced = await exchange(running.port, f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        assert announced.startswith(b"HTTP/1.1 413 ")
        assert b"(size:99999999999) exceeds the limit (4194304)" in announced
        asked = await exchange(running.port, f"{head}Content-Length: 5000000\r\nExpect: 100-continue\r\n\r\n".encode())
        assert asked.startswith(b"HTTP/1.1 413 ")
        # A body slightly above the limit is read to its end, and the connection stays open.
        slightly = await client.post("/orders/messages", content=bytes((4 << 20) + 1))
        assert slightly.status_code == 413

    served(tmp_path, play, tier=Tier.PREMIUM)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"401"),
        (b"GET /m\xffetrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"400"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"40"),
        (b"GET http://x/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * (LONGEST_HEAD + 70_000), b"400"),
        (b"GET /" + b"x" * (LONGEST_HEAD + 70_000), b"400"),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * (MOST_HEADERS + 2), b"400"),
        (
            b"POST /q/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * (MOST_HEADERS + 2),
            b"400",
        ),
        (b"POST /q/messages HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n", b"200"),
    ],
)
def test_invalid_http_is_answered_and_closed(tmp_path: Path, request_: bytes, status: bytes) -> None:
    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        answer = await asyncio.wait_for(exchange(running.port, request_), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 " + status)

    served(tmp_path, play)


def test_a_receiver_that_disconnects_loses_no_message(tmp_path: Path) -> None:
    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        await front.queue()
        request = (
            f"DELETE /orders/messages/head?timeout=50 HTTP/1.1\r\nHost: x\r\nAuthorization: {token(front.time)}\r\n\r\n"
        )
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(request.encode())
        while not front.core.arrivals._waiting:
            await asyncio.sleep(0.005)
        writer.close()
        await writer.wait_closed()
        while front.core.arrivals._waiting:
            await asyncio.sleep(0.005)
        await front.send("orders", b"kept")
        assert (await client.delete("/orders/messages/head?timeout=5")).content == b"kept"

    served(tmp_path, play)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def waiting_receives(front: Front, running: HttpServer, count: int) -> list[Streams]:
    """Return connections that wait for a message of `orders`, all with one key."""
    headers = f"Host: x\r\nAuthorization: {token(front.time, LISTENER)}\r\n\r\n"
    waiting: list[Streams] = []
    for _ in range(count):
        waiting.append(await asyncio.open_connection("127.0.0.1", running.port))
        waiting[-1][1].write(f"POST /orders/messages/head?timeout=60 HTTP/1.1\r\n{headers}".encode())
        while front.broker.waiters < len(waiting):
            await asyncio.sleep(0.005)
    return waiting


def test_waiting_receives_give_way_and_lose_no_message(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        await front.queue()
        running = server(front.app, listen("127.0.0.1", 0), most_connections=4)
        await running.start()
        try:
            waiting = await waiting_receives(front, running, 4)
            first, *others = [reader for reader, _ in waiting]
            asked = f"Host: {HOST}\r\nAuthorization: {token(front.time)}\r\nConnection: close\r\n\r\n"
            for path in ("/health/live", "/metrics"):
                answer = await exchange(running.port, f"GET {path} HTTP/1.1\r\n{asked}".encode())
                assert answer.startswith(b"HTTP/1.1 200 "), answer
            # The first one has waited longest. It is answered and closed.
            answer = await asyncio.wait_for(first.read(), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 204 "), answer
            assert b"connection: close" in answer
            await front.send("orders", b"kept")
            reading = [asyncio.create_task(reader.readuntil(b"kept")) for reader in others]
            async with asyncio.timeout(PATIENCE):
                while not any(each.done() and not each.exception() for each in reading):
                    await asyncio.sleep(0.005)
            for each, (_, writer) in zip([None, *reading], waiting, strict=True):
                writer.close()
                if each is not None:
                    each.cancel()
        finally:
            await running.stop()

    scenario(tmp_path, run)


async def ask_for_health(running: HttpServer) -> None:
    answer = await exchange(running.port, b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def test_a_receive_gives_way_although_a_request_waits_behind_it(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        await front.queue()
        running = server(front.app, listen("127.0.0.1", 0), most_connections=1)
        await running.start()
        try:
            ((reader, writer),) = await waiting_receives(front, running, 1)
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            while not any(isinstance(each, Protocol) and each.pipeline for each in running.server_state.connections):
                await asyncio.sleep(0.005)
            await ask_for_health(running)
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 204 "), answer
            assert b"connection: close" in answer
            writer.close()
        finally:
            await running.stop()

    scenario(tmp_path, run)


def test_a_receive_that_gives_way_returns_the_message_that_was_deleted_for_it(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        await front.queue()
        await front.send("orders", b"kept")
        await front.broker.counts("orders")
        running = server(front.app, listen("127.0.0.1", 0), most_connections=1)
        await running.start()
        first, second, begun = threading.Event(), threading.Event(), threading.Event()

        def hold(_: object) -> None:
            begun.set()
            second.wait()

        try:
            # The store is busy, and works on the receive right after `hold`, in one transaction.
            busy = [asyncio.create_task(front.core.store.run(work)) for work in (lambda _: first.wait(), hold)]
            await asyncio.sleep(0)
            uses = front.core.store.submitted
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            headers = f"Host: x\r\nAuthorization: {token(front.time)}\r\n\r\n"
            writer.write(f"DELETE /orders/messages/head?timeout=60 HTTP/1.1\r\n{headers}".encode())
            while front.core.store.submitted == uses:
                await asyncio.sleep(0.005)
            first.set()
            await asyncio.to_thread(begun.wait)
            await ask_for_health(running)
            second.set()
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert answer.endswith(b"kept")
            # Nobody counts the connection any more.
            assert b"connection: close" in answer
            writer.close()
            await asyncio.gather(*busy)
        finally:
            first.set()
            second.set()
            await running.stop()

    scenario(tmp_path, run)


def test_slow_bodies_of_one_key_take_no_place_from_others(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        await front.queue()
        running = server(front.app, listen("127.0.0.1", 0), most_connections=3)
        await running.start()
        slow = f"Host: x\r\nAuthorization: {token(front.time)}\r\nContent-Length: 1000\r\n\r\nhalf"
        writers = []
        try:
            for _ in range(10):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(f"POST /orders/messages HTTP/1.1\r\n{slow}".encode())
                await writer.drain()
                writers.append(writer)
            for _ in range(3):
                answer = await exchange(
                    running.port, b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
                assert answer.startswith(b"HTTP/1.1 200 "), answer
        finally:
            for writer in writers:
                writer.close()
            await running.stop()

    scenario(tmp_path, run)


def test_beyond_the_limit_health_and_other_keys_are_answered(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        await front.queue()
        running = server(front.app, listen("127.0.0.1", 0), most_connections=2)
        await running.start()
        turns, busy = asyncio.Event(), []

        async def wait(*_: object, **__: object) -> list[object]:
            await turns.wait()
            return []

        front.broker.peek = wait  # type: ignore[assignment]
        listens, root = (
            f"Host: x\r\nAuthorization: {token(front.time, rule)}\r\nConnection: close\r\n\r\n"
            for rule in (LISTENER, ROOT)
        )
        try:
            for _ in range(2):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(f"GET /orders/$messages HTTP/1.1\r\n{listens}".encode())
                busy.append(writer)
            # The same key is refused once both are busy.
            while b"503" not in (
                answer := await exchange(
                    running.port, f"DELETE /orders/messages/head?timeout=0 HTTP/1.1\r\n{listens}".encode()
                )
            ):
                assert answer.startswith(b"HTTP/1.1 204 "), answer
            assert b"the key of this request has too many connections" in answer
            for path in ("/health/live", "/metrics"):
                answer = await exchange(running.port, f"GET {path} HTTP/1.1\r\n{root}".encode())
                assert answer.startswith(b"HTTP/1.1 200 "), answer
        finally:
            turns.set()
            for writer in busy:
                writer.close()
            await running.stop()

    scenario(tmp_path, run)


def test_signals_are_left_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        assert signal.getsignal(signal.SIGTERM) == before

    served(tmp_path, play)


def test_a_used_address_and_a_bad_certificate_are_errors(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        app = make_app(front.broker, namespace_rules=tuple)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CannotListen, match=rf"Cannot listen at 127\.0\.0\.1, port {port}: the port is in use"):
                listen("127.0.0.1", port)
        with pytest.raises(CannotListen, match="Cannot listen at no such host, port 0: "):
            listen("no such host", 0)
        missing = tmp_path / "cert.pem"
        unused = pytest.raises(CannotListen, match=r"cert\.pem' with .* cannot be used: No such file or directory")
        with listen("127.0.0.1", 0) as listener, unused:
            server(app, listener, Tls(missing, missing))

    scenario(tmp_path / "data", play)


def test_an_idle_connection_is_closed_for_a_busy_one(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        running = server(front.app, listen("127.0.0.1", 0), most_connections=3)
        await running.start()
        try:
            halves = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(10)]
            for _, writer in halves:
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            for _ in range(10):
                answer = await exchange(running.port, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b"Exceeded concurrency limit" not in answer
                assert answer.startswith(b"HTTP/1.1 ")
            for reader, writer in halves:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        finally:
            await running.stop()

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    "half",
    [
        b"POST /orders/messages HTTP/1.1\r\nHost: x\r\n",
        b"POST /orders/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf",
        b"POST /$portal/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nrule=Root",
    ],
    ids=["head", "body", "sign-in"],
)
def test_half_open_requests_are_closed_for_others(tmp_path: Path, half: bytes) -> None:
    """Clients that begin a request and stop take no place from others, however many they are."""

    async def run(front: Front) -> None:
        running = server(front.app, listen("127.0.0.1", 0), most_connections=5)
        await running.start()
        strangers = []
        try:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(half)
                await writer.drain()
                strangers.append(writer)
            for _ in range(3):
                answer = await exchange(running.port, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200 ")
        finally:
            for writer in strangers:
                writer.close()
            await running.stop()

    scenario(tmp_path, run)


def test_half_open_requests_do_not_close_the_idle_connection_of_a_client(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        running = server(front.app, listen("127.0.0.1", 0), most_connections=5)
        await running.start()
        authorization = f"Host: {HOST}\r\nAuthorization: {token(front.time)}\r\n\r\n"
        asked = f"GET /$Resources/queues?api-version=2021-05 HTTP/1.1\r\n{authorization}".encode()
        strangers = []
        reader, client = await asyncio.open_connection("127.0.0.1", running.port)
        try:
            for _ in range(3):
                client.write(asked)
                assert await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE) == b"HTTP/1.1 200 OK\r\n"
                await asyncio.wait_for(reader.readuntil(b"</feed>"), PATIENCE)
                for _ in range(10):
                    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                    writer.write(b"POST /orders/messages HTTP/1.1\r\nHost: x\r\n")
                    strangers.append(writer)
        finally:
            for writer in [client, *strangers]:
                writer.close()
            await running.stop()

    scenario(tmp_path, run)


def test_only_a_few_of_many_pipelined_requests_are_answered(tmp_path: Path) -> None:
    async def play(front: Front, running: HttpServer, client: httpx.AsyncClient) -> None:
        asked = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await asyncio.wait_for(exchange(running.port, asked * 1000), PATIENCE)
        assert answer.count(b"HTTP/1.1 200 ") == MOST_PIPELINED + 1
        assert answer.count(b"connection: close") == 1
        # Up to the limit, all requests are answered, and the connection stays open.
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for _ in range(2):
            writer.write(asked * MOST_PIPELINED)
            for _ in range(MOST_PIPELINED):
                assert await asyncio.wait_for(reader.readuntil(b'"status":"'), PATIENCE)
        writer.close()

    served(tmp_path, play)


@contextlib.asynccontextmanager
async def asking_without_reading(running: HttpServer, count: int) -> AsyncIterator[None]:
    """Open connections that request pages and read none of them, so that all responses are stuck."""
    loop, asked = asyncio.get_running_loop(), b"GET /$portal/static/portal.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            before = set(running.server_state.connections)
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            async with asyncio.timeout(PATIENCE):
                await loop.sock_connect(connection, ("127.0.0.1", running.port))
                while not (new := set(running.server_state.connections) - before):
                    await asyncio.sleep(0.001)
                (made,) = new
                assert isinstance(made, http_protocol.Protocol)
                while not made.flow.write_paused:
                    if not made.pipeline:
                        await loop.sock_sendall(connection, asked)
                    await asyncio.sleep(0.001)
        yield


def with_small_buffers() -> socket.socket:
    """Return a socket whose connections have small buffers."""
    listener = listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return listener


def test_clients_that_do_not_read_are_closed_for_others(tmp_path: Path) -> None:
    async def run(front: Front) -> None:
        running = server(front.app, with_small_buffers(), most_connections=3)
        await running.start()
        try:
            async with asking_without_reading(running, 3):
                for _ in range(5):
                    asked = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                    assert (await exchange(running.port, asked)).startswith(b"HTTP/1.1 200 ")
        finally:
            await running.stop()

    scenario(tmp_path, run)


def test_a_client_that_reads_nothing_for_long_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "STUCK_SECONDS", 0.05)

    async def run(front: Front) -> None:
        running = server(front.app, with_small_buffers())
        await running.start()
        try:
            async with asking_without_reading(running, 1), asyncio.timeout(PATIENCE):
                while running.server_state.connections:
                    await asyncio.sleep(0.01)
        finally:
            await running.stop()

    scenario(tmp_path, run)
