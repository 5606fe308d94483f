"""One port for everything: AMQP, HTTP and WebSockets, with and without TLS, by one connection string."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.management import ServiceBusAdministrationClient

from oncebus.amqp.frames import AMQP_HEADER
from oncebus.model.access import EMULATOR_RULE, AuthorizationRule, KeyFile, connection_string
from oncebus.programs.serve import addresses
from oncebus.programs.serve.addresses import ClientAddress, Sockets
from oncebus.programs.serve.certificate import CERTIFICATE
from oncebus.programs.serve.gateway import run_gateway
from oncebus.protocols.listening import listen
from oncebus.values.settings import Settings, load
from tests.clients import javascript

from .clients import Client
from .test_gateway import PATIENCE, gateway, pipeline

HEALTH = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Served:
    """A gateway with one port, its clients' string, and the certificate that they must trust if there is one."""

    def __init__(self, url: str, data: Path, rule: AuthorizationRule) -> None:
        self.url, self.port = url, int(url.rpartition(":")[2])
        is_plain = url.startswith("http:")
        self.certificate = None if is_plain else data / CERTIFICATE
        self.string = connection_string("localhost", self.port, rule, emulator=is_plain)
        self.is_emulator = rule is EMULATOR_RULE
        self.http = Client(url, data)

    @property
    def context(self) -> ssl.SSLContext | None:
        return None if self.certificate is None else ssl.create_default_context(cafile=self.certificate)

    async def answer(self, data: bytes, *, is_encrypted: bool, at_once: bool = True, expected: int = 8) -> bytes:
        """Return the first bytes of the answer, fewer if the gateway disconnects before."""
        context = self.context if is_encrypted else None
        name = "localhost" if context is not None else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)
        try:
            for piece in [data] if at_once else [bytes([byte]) for byte in data]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
            return await asyncio.wait_for(reader.readexactly(expected), PATIENCE)
        except asyncio.IncompleteReadError as error:
            return error.partial
        finally:
            writer.transport.abort()


@contextlib.contextmanager
def one_port(folder: Path, *more: str) -> Iterator[Served]:
    """Run a gateway whose port serves everything."""
    data = folder / "data"
    with gateway(folder, "--port", "0", "--amqps-port", "0", *more) as running, pipeline(data):
        url = running.ready()
        rule = EMULATOR_RULE if "--emulator" in more else KeyFile(data / "keys.json").rules()[0]
        yield Served(url, data, rule)
        assert running.stop() == 0


@pytest.fixture(scope="module", params=["plain", "tls", "emulator"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = [] if request.param == "plain" else [f"--{request.param}"]
    with one_port(tmp_path_factory.mktemp(request.param), *options) as running:
        yield running


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
def test_the_first_bytes_choose_the_protocol(served: Served, at_once: bool) -> None:
    async def play() -> None:
        is_encrypted = served.certificate is not None
        for data, expected in {AMQP_HEADER: AMQP_HEADER, HEALTH: b"HTTP/1.1"}.items():
            assert await served.answer(data, is_encrypted=is_encrypted, at_once=at_once) == expected

    asyncio.run(play())


def test_nothing_else_is_served(served: Served) -> None:
    async def play() -> None:
        is_encrypted = served.certificate is not None
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"nonsense\r\n\r\n"):
            assert await served.answer(garbage, is_encrypted=is_encrypted, expected=12) == b"HTTP/1.1 400"
        if is_encrypted:
            # With TLS, nothing is served without it. OpenSSL may still answer that this was no handshake.
            for data in (AMQP_HEADER, HEALTH):
                with contextlib.suppress(ConnectionResetError):
                    assert await served.answer(data, is_encrypted=False) not in (AMQP_HEADER, b"HTTP/1.1")

    asyncio.run(play())


@pytest.mark.parametrize("transport", TransportType)
def test_python_sends_and_receives(served: Served, transport: TransportType) -> None:
    # With TLS this client uses the port 5671, or 443 for WebSockets, unless it is given an address.
    place = f"sb://localhost:{served.port}"
    client = ServiceBusClient.from_connection_string(
        served.string,
        transport_type=transport,
        custom_endpoint_address=place,
        connection_verify=None if served.certificate is None else str(served.certificate),
    )
    with client, client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages([ServiceBusMessage("first", message_id=str(transport)), ServiceBusMessage(b"x" * 100_000)])
        found: list[bytes] = []
        while len(found) < 2:
            for message in receiver.receive_messages(2, max_wait_time=PATIENCE):
                found.append(b"".join(message.body))
                receiver.complete_message(message)
        assert found == [b"first", b"x" * 100_000]


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")
def test_python_with_asyncio_sends_and_receives_over_websockets(served: Served) -> None:
    async def play() -> None:
        async with (
            AsyncClient.from_connection_string(
                served.string,
                transport_type=TransportType.AmqpOverWebsocket,
                custom_endpoint_address=f"sb://localhost:{served.port}",
                connection_verify=None if served.certificate is None else str(served.certificate),
            ) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders") as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("hello"))
            (message,) = await receiver.receive_messages(1, max_wait_time=PATIENCE)
            assert b"".join(message.body) == b"hello"
            await receiver.complete_message(message)

    asyncio.run(play())


@pytest.mark.parametrize("served", ["tls"], indirect=True)
def test_python_administers(served: Served) -> None:
    trusted = str(served.certificate)
    with ServiceBusAdministrationClient.from_connection_string(served.string, connection_verify=trusted) as client:
        assert client.create_queue("made", requires_duplicate_detection=True).requires_duplicate_detection
        assert client.get_queue_runtime_properties("made").total_message_count == 0
        assert {"made", "orders"} <= {queue.name for queue in client.list_queues()}
        client.delete_queue("made")


@pytest.mark.parametrize("served", ["tls"], indirect=True)
def test_javascript_sends_receives_and_administers(served: Served) -> None:
    with javascript.workplace(javascript.HERE / "one_port.mjs") as folder:
        variables = {"SERVICEBUS_CONNECTION_STRING": served.string, "NODE_EXTRA_CA_CERTS": str(served.certificate)}
        print(javascript.run(folder, ["node", "--test", "one_port.mjs"], {**os.environ, **variables}))


def test_http_administers(served: Served) -> None:
    """Without TLS too, which the official administration clients insist on."""
    assert served.http.put("over-http")[0] == 201
    assert served.http.delete("over-http") == 200


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://evil.example"])
def test_a_page_of_another_site_cannot_use_the_key_of_the_emulator(served: Served, origin: str) -> None:
    asked = (
        "GET /$servicebus/websocket HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: amqp\r\nHost: localhost\r\nOrigin: {origin}\r\n\r\n"
    )
    is_refused = served.is_emulator and "evil" in origin
    is_encrypted = served.certificate is not None
    answer = asyncio.run(served.answer(asked.encode(), is_encrypted=is_encrypted, expected=12))
    assert answer == (b"HTTP/1.1 421" if is_refused else b"HTTP/1.1 101")


def test_the_port_may_be_the_same_as_the_others(tmp_path: Path) -> None:
    """One socket then is all that there is."""

    async def play() -> None:
        one = listen("127.0.0.1", 0)
        served, url = asyncio.Event(), ""

        def announce(event: str, told: str) -> None:
            nonlocal url
            if event == "open":
                url = told
                served.set()

        settings = Settings(data=tmp_path / "data")
        running = asyncio.create_task(run_gateway(settings, sockets=Sockets(one, one, one), announce=announce))
        async with asyncio.timeout(PATIENCE):
            waiting = asyncio.create_task(served.wait())
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            assert waiting.done(), running.exception()
            place = Served(url, settings.data, KeyFile(settings.key_path).rules()[0])
            assert await place.answer(AMQP_HEADER, is_encrypted=False) == AMQP_HEADER
            assert await place.answer(HEALTH, is_encrypted=False) == b"HTTP/1.1"
            os.kill(os.getpid(), signal.SIGTERM)
            await running

    asyncio.run(play())


def test_sockets_are_shared_where_ports_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def listening(host: str, port: int, flag: str | None = None) -> socket.socket:
        asked.append(port)
        return listen(host, 0, flag)

    monkeypatch.setattr(addresses, "listen", listening)
    for settings, expected, same in [
        (Settings(), [5300, 5672], ()),
        (Settings(port=443), [443, 5300, 5672], ()),
        (Settings(port=5672), [5672, 5300], ("amqp",)),
        (Settings(port=5300), [5300, 5672], ("http",)),
        (Settings(port=5671, tls=True), [5671, 5300], ("amqp",)),
        (Settings(port=7, http_port=7, amqp_port=7), [7], ("http", "amqp")),
        (Settings(port=0, http_port=0, amqp_port=0), [0, 0, 0], ()),
    ]:
        asked.clear()
        with contextlib.closing(Sockets.open(settings)) as bound:
            assert asked == expected
            assert (bound.both is None) == (settings.port is None)
            if bound.both is not None:
                assert tuple(name for name in ("http", "amqp") if getattr(bound, name) is bound.both) == same
            again = Sockets.of_descriptors(**{name: os.dup(number) for name, number in bound.descriptors.items()})
            again.close()


def test_one_line_for_all_clients(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    key = keys.rules()[0].primary_key
    rule = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
    plain = f"{rule};UseDevelopmentEmulator=true"
    for given, port, line in [
        ({}, 5672, f"Endpoint=sb://localhost;{plain}"),
        # Administration clients have another usual port, so this one is named.
        ({"port": 5672}, 5672, f"Endpoint=sb://localhost:5672;{plain}"),
        ({"port": 0}, 40001, f"Endpoint=sb://localhost:40001;{plain}"),
        ({"port": 5671, "tls": True}, 5671, f"Endpoint=sb://localhost:5671/;{rule}"),
    ]:
        address = ClientAddress.of(load(given, {}, None), port)
        assert address.connection_string(keys.rules()[0]) == line
        assert ClientAddress.parse(str(address)) == address
