"""A broker in the test's own process that real clients of Azure Service Bus reach over AMQP, on any transport.

It runs in a thread with its own event loop, so that the clients' blocking calls do not block it.
"""

from __future__ import annotations

import asyncio
import itertools
import platform
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    TransportType,
)
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from oncebus.broker.addresses import parse_address
from oncebus.broker.broker import Broker
from oncebus.broker.clock import wall_time
from oncebus.engine.store import Message, Mode
from oncebus.model.access import AuthorizationRule, Issuer, Right, connection_string
from oncebus.model.entities import Queue, Subscription, Tier, Topic
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.programs.serve.servers import tls_context
from oncebus.protocols.http import Tls, listen, server
from oncebus.protocols.servicebus import AmqpLimits, ServiceBusServer, make_server
from oncebus.protocols.servicebus.messages import incoming_message
from oncebus.protocols.servicebus.upgrade import Upgrade
from oncebus.values.settings import Settings
from tests.broker.in_process import FakeTime, running_broker

T = TypeVar("T")
K = TypeVar("K", ServiceBusSender, ServiceBusReceiver)

ROOT = AuthorizationRule("RootManageSharedAccessKey", frozenset({Right.MANAGE}), "root-one", "root-two")
SENDER = AuthorizationRule("sender", frozenset({Right.SEND}), "sender-one", "sender-two")
LISTENER = AuthorizationRule("listener", frozenset({Right.LISTEN}), "listener-one", "listener-two")
NAMESPACE = (ROOT, SENDER, LISTENER)

# Errors are raised at once, without retries, and an idle client stops listening sooner.
QUICK = {"retry_total": 0, "socket_timeout": 0.05}
PATIENCE = 60.0
"""How long it may take to receive a message that is in the queue, in seconds."""


# The clients ask for the platform, and Python starts `uname` at the first call.
platform.platform()


class Transport(StrEnum):
    """How clients reach the bus."""

    TCP = "tcp"
    WEBSOCKET = "websocket"
    """A WebSocket at the port of HTTP."""
    SECURE_WEBSOCKET = "secure-websocket"
    """A WebSocket with TLS, at a port of all protocols."""


class Pair(NamedTuple):
    """A queue with a sender and a receiver."""

    queue: str
    sender: ServiceBusSender
    receiver: ServiceBusReceiver


class Bus:
    """The broker and its server, controlled from outside their thread."""

    broker: Broker
    server: ServiceBusServer
    port: int
    certificate: Path | None = None
    """What clients of a bus with TLS must trust."""

    def __init__(self, time: FakeTime | None, transport: Transport) -> None:
        self.time = time
        self.transport = transport
        self.loop = asyncio.new_event_loop()
        self.ready: Future[None] = Future()
        self.stopping = asyncio.Event()
        self._names = itertools.count(1)
        self._opened: list[ServiceBusSender | ServiceBusReceiver] = []
        self._pairs: list[Pair] = []

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the broker's event loop and return its result."""
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(2 * PATIENCE)

    def string(self, rule: AuthorizationRule = ROOT) -> str:
        """Return the connection string of a rule."""
        return connection_string("localhost", self.port, rule, emulator=self.certificate is None)

    def client(self, rule: AuthorizationRule = ROOT, **options: Any) -> ServiceBusClient:
        """Return the official client."""
        return ServiceBusClient.from_connection_string(self.string(rule), **{**self._options, **options})

    def async_client(self, rule: AuthorizationRule = ROOT, **options: Any) -> AsyncClient:
        """Return the official client for asyncio."""
        return AsyncClient.from_connection_string(self.string(rule), **{**self._options, **options})

    @property
    def _options(self) -> dict[str, Any]:
        if self.transport is Transport.TCP:
            return QUICK
        # Without the address the client would use the port 80 or 443.
        place = {"custom_endpoint_address": f"sb://localhost:{self.port}", "connection_verify": self.certificate}
        return QUICK | place | {"transport_type": TransportType.AmqpOverWebsocket}

    def sender(self, entity: str, rule: AuthorizationRule = ROOT) -> ServiceBusSender:
        """Return a sender to a queue or topic, which are the same to the client. The bus closes it."""
        return self._kept(self.client(rule).get_queue_sender(entity, keep_alive=0))

    def receiver(self, entity: str, rule: AuthorizationRule = ROOT, **options: Any) -> ServiceBusReceiver:
        """Return a receiver from a queue, or from a subscription given as topic/name. The bus closes it."""
        topic, _, subscription = entity.partition("/")
        client = self.client(rule)
        if subscription:
            return self._kept(client.get_subscription_receiver(topic, subscription, **options))
        return self._kept(client.get_queue_receiver(entity, **options))

    def prepare(self, count: int) -> None:
        """Open `count` pairs at the same time, because a client takes half a second, mostly asleep."""

        def pair() -> Pair:
            queue = self.queue()
            return Pair(queue, self.sender(queue), self.receiver(queue))

        self._pairs += self.together(*[pair] * count)

    def pair(self) -> Pair:
        """Return a queue for one test, with an open sender and receiver."""
        if not self._pairs:
            self.prepare(8)
        return self._pairs.pop()

    def _kept(self, opened: K) -> K:
        self._opened.append(opened)
        opened.__enter__()
        return opened

    def close_clients(self) -> None:
        """Close all clients at the same time, because each waits a second for its own thread."""
        with ThreadPoolExecutor(128) as closing:
            for result in [closing.submit(each.close) for each in self._opened]:
                result.result(60)

    def queue(self, **options: Any) -> str:
        """Create a queue for one test and return its name."""
        name = f"queue-{next(self._names)}"
        self.run(self.broker.change(lambda catalogue, now: catalogue.create(Queue(name=name, **options), now)))
        return name

    def topic(self, *subscriptions: str, **options: Any) -> str:
        """Create a topic with subscriptions for one test and return its name."""
        name = f"topic-{next(self._names)}"
        self.run(self.broker.change(lambda catalogue, now: catalogue.create(Topic(name=name, **options), now)))
        for each in subscriptions:
            self.subscription(name, each)
        return name

    def subscription(self, topic: str, name: str, **options: Any) -> None:
        subscription = Subscription(topic=topic, name=name, **options)
        self.run(self.broker.change(lambda catalogue, now: catalogue.create(subscription, now)))

    def put(self, entity: str, *messages: ServiceBusMessage | AmqpAnnotatedMessage) -> list[int]:
        """Send messages without a client, which would be slow, and return their sequence numbers."""
        return self.run(self.broker.send(entity, [incoming_message(encoded(message)) for message in messages]))

    def take(self, entity: str, count: int) -> list[tuple[Message, bytes]]:
        """Receive and delete `count` messages without a client. Return them with their encoded bodies."""

        async def receive() -> list[tuple[Message, bytes]]:
            found: list[tuple[Message, bytes]] = []
            while len(found) < count:
                wanted, delete = count - len(found), Mode.RECEIVE_AND_DELETE
                received = await self.broker.receive(parse_address(entity), wanted, mode=delete, wait=PATIENCE)
                assert received, f"{len(found)} of {count} came"
                found += [(each.message, each.body) for each in received]
            return found

        return self.run(receive())

    def together(self, *open_one: Callable[[], Any]) -> list[Any]:
        """Open several clients at the same time, because they mostly sleep."""
        with ThreadPoolExecutor(len(open_one)) as opening:
            return [result.result(2 * PATIENCE) for result in [opening.submit(each) for each in open_one]]

    def refused(self, *open_one: Callable[[], object]) -> list[Exception]:
        """Open clients that must fail, at the same time, and return their errors."""

        def reason(opening: Callable[[], object]) -> Exception | None:
            try:
                opening()
            except Exception as error:
                return error
            return None

        reasons = self.together(*(partial(reason, each) for each in open_one))
        assert None not in reasons, f"of {len(reasons)} this one was opened: {reasons.index(None)}"
        return reasons

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds."""
        deadline = monotonic() + PATIENCE
        while not condition():
            assert monotonic() < deadline, f"waited {PATIENCE} s for: {what}"
            sleep(0.01)

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock."""
        assert self.time is not None
        self.time.advance(seconds)


def encoded(message: ServiceBusMessage | AmqpAnnotatedMessage) -> bytes:
    """Return the client's encoding of a message."""
    given = message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message
    raw = PyamqpTransport.to_outgoing_amqp_message(given)
    return bytes(encode_payload(bytearray(), raw))


@asynccontextmanager
async def _listening(bus: Bus, data: Path) -> AsyncIterator[None]:
    """Let clients in over the transport of the bus."""
    with listen("127.0.0.1", 0) as listener:
        bus.port = listener.getsockname()[1]
        if bus.transport is Transport.TCP:
            await bus.server.start(listener)
            yield
            await bus.server.stop()
            return
        app = make_app(bus.broker, namespace_rules=lambda: NAMESPACE)
        upgrade = Upgrade(bus.server.make_protocol)
        if bus.transport is Transport.WEBSOCKET:
            http = server(app, listener, upgrade=upgrade)
            await http.start()
        else:
            made = own_certificate(data / "tls", "localhost", wall_time())
            bus.certificate = data / "tls" / CERTIFICATE
            http = server(app, None, Tls(made.certificate, made.key), upgrade=upgrade)
            await http.start()
            context = tls_context(Settings(tls_cert=made.certificate, tls_key=made.key))
            await bus.server.start(listener, context, http.make_protocol)
        yield
        await asyncio.gather(http.stop(), bus.server.stop())


@contextmanager
def running_bus(
    data: Path,
    time: FakeTime | None = None,
    *,
    tier: Tier = Tier.STANDARD,
    limits: AmqpLimits | None = None,
    transport: Transport = Transport.TCP,
    issuer: Issuer | None = None,
) -> Iterator[Bus]:
    """Run a bus for the block. Its own clock, if it has one, starts at the current time, which clients use."""
    if time is not None:
        time.now = wall_time()
    bus = Bus(time, transport)

    async def serve() -> None:
        async with running_broker(data, time, tier=tier) as broker:
            bus.broker = broker
            bus.server = make_server(broker, namespace_rules=lambda: NAMESPACE, issuer=issuer, limits=limits)
            async with _listening(bus, data):
                bus.ready.set_result(None)
                await bus.stopping.wait()

    def run() -> None:
        asyncio.set_event_loop(bus.loop)
        try:
            bus.loop.run_until_complete(serve())
        except BaseException as error:
            if not bus.ready.done():
                bus.ready.set_exception(error)
            raise
        finally:
            bus.loop.run_until_complete(bus.loop.shutdown_default_executor())
            bus.loop.close()

    thread = threading.Thread(target=run, name="bus")
    thread.start()
    try:
        bus.ready.result(60)
        yield bus
        bus.close_clients()
    finally:
        if not bus.loop.is_closed():
            bus.loop.call_soon_threadsafe(bus.stopping.set)
        thread.join(60)
        assert not thread.is_alive()
