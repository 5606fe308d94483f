"""A real `oncebus serve`, including Spark, and the official clients for it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.aio import ServiceBusReceiver as AsyncReceiver
from azure.servicebus.management import ServiceBusAdministrationClient
from proton.utils import BlockingConnection

from oncebus.broker.clock import wall_time
from oncebus.model.access import AuthorizationRule, KeyFile, Right, connection_string, make_token
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.values.durations import SECOND
from tests.programs.serve.clients import Client, Running
from tests.programs.serve.programs import until
from tests.programs.serve.services import service

from .entities import Pool, described
from .relay import relay

PATIENCE = 60.0
"""How long a message may take to arrive on a busy machine, in seconds."""
SHORT = 1.0
"""How long to wait for a message that should not come, in seconds."""


class Pair(NamedTuple):
    """A queue with an open sender and receiver."""

    queue: str
    sender: ServiceBusSender
    receiver: ServiceBusReceiver


class Served:
    """The broker as its clients see it. Each scenario takes its own entities."""

    def __init__(
        self, running: Running, folder: Path, port: int, url: str, tls_ports: tuple[int, int], certificate: Path
    ) -> None:
        self.running, self.port, self.certificate = running, port, certificate
        self.https_port, self.amqps_port = tls_ports
        self.http = Client(url, folder / "data")
        keys = KeyFile(folder / "data" / "keys.json")
        self.root = keys.rules()[0]
        self.only_sends = keys.put("only-sends", {Right.SEND})
        self.only_listens = keys.put("only-listens", {Right.LISTEN})
        self.pool = Pool()

    @property
    def gateway(self) -> int:
        """The process id of the current gateway."""
        return self.running.child("gateway")

    def queue(self, kind: str = "plain") -> str:
        """Return a queue that no other scenario uses."""
        return self.pool.take(kind)[0]

    def topic(self, kind: str = "topic") -> str:
        """Return a topic that no other scenario uses, with the subscriptions of `entities.SUBSCRIPTIONS`."""
        return self.pool.take(kind)[0]

    # Clients

    def string(self, rule: AuthorizationRule | None = None, port: int | None = None) -> str:
        """Return a connection string; `port` is that of a relay."""
        return connection_string("localhost", port or self.port, rule or self.root, emulator=True)

    def token_string(self, seconds: float, rule: AuthorizationRule | None = None) -> str:
        """Return a connection string with a token that is valid for `seconds`."""
        signer = rule or self.root
        expiry = wall_time() + round(seconds * SECOND)
        token = make_token(f"sb://localhost:{self.port}/", signer.name, signer.primary_key, expiry)
        return f"Endpoint=sb://localhost:{self.port}/;SharedAccessSignature={token};UseDevelopmentEmulator=true"

    def client(self, rule: AuthorizationRule | None = None, **options: Any) -> ServiceBusClient:
        """Return the official client, with its defaults unless there are options."""
        return ServiceBusClient.from_connection_string(self.string(rule), **options)

    def async_client(self, rule: AuthorizationRule | None = None, **options: Any) -> AsyncClient:
        """Return the official client for asyncio."""
        return AsyncClient.from_connection_string(self.string(rule), **options)

    @contextmanager
    def pair(self, kind: str = "plain", **options: Any) -> Iterator[Pair]:
        """Open a queue for one scenario, with a sender and a receiver. The options are for the receiver."""
        queue = self.queue(kind)
        with (
            self.client() as client,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue, **options) as receiver,
        ):
            yield Pair(queue, sender, receiver)

    @contextmanager
    def administration(self) -> Iterator[ServiceBusAdministrationClient]:
        """Open the official administration client. It requires TLS, which a relay terminates."""
        text = connection_string("localhost", self.https_port, self.root, emulator=False)
        trusted = str(self.certificate)
        with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=trusted) as client:
            yield client

    @contextmanager
    def proton(self, rule: AuthorizationRule | None = None, port: int | None = None) -> Iterator[BlockingConnection]:
        """Open a connection of Qpid Proton, which is not a Service Bus client."""
        signer = rule or self.root
        connection = BlockingConnection(
            f"amqp://localhost:{port or self.port}",
            timeout=PATIENCE,
            user=signer.name,
            password=signer.primary_key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        try:
            yield connection
        finally:
            connection.close()

    # State of the broker over HTTP

    def dropped(self, entity: str, count: int) -> list[str]:
        """Wait for `count` recorded duplicates and return their ids."""
        until(lambda: len(self.http.drops(entity)) >= count, f"{count} duplicates of {entity}", limit=PATIENCE)
        return [drop["messageId"] for drop in self.http.drops(entity)]

    def arrived(self, queue: str, count: int, state: str = "active") -> None:
        """Wait until `count` messages have passed the pipeline. The broker's own wait is limited to two seconds."""

        def there() -> bool:
            return self.http.metric("messages", entity=queue, state=state) == count

        until(there, f"{count} {state} messages in {queue}", limit=PATIENCE)

    def accepted(self, entity: str, count: int) -> None:
        """Wait until detection has accepted `count` messages as new."""

        def judged() -> bool:
            return self.http.metric("messages_new_total", entity=entity) == count

        until(judged, f"{count} messages accepted by {entity}", limit=PATIENCE)

    def memory(self) -> int:
        """Return the memory of the gateway in bytes."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.gateway}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


def body(message: ServiceBusReceivedMessage) -> bytes:
    """Return the complete body of a message."""
    return b"".join(message.body)


def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive `count` messages, in as many calls as it takes."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = receiver.receive_messages(count - len(found), max_wait_time=PATIENCE)
        assert some, f"{len(found)} of {count} came"
        found += some
    return found


async def async_received(receiver: AsyncReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive `count` messages, in as many calls as it takes."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = await receiver.receive_messages(count - len(found), max_wait_time=PATIENCE)
        assert some, f"{len(found)} of {count} came"
        found += some
    return found


def completed(receiver: ServiceBusReceiver, count: int) -> list[bytes]:
    """Receive and complete `count` messages, and return their bodies."""
    messages = received(receiver, count)
    for message in messages:
        receiver.complete_message(message)
    return [body(message) for message in messages]


def is_empty(receiver: ServiceBusReceiver) -> bool:
    """Return whether no message comes."""
    return receiver.receive_messages(1, max_wait_time=SHORT) == []


def left(receiver: ServiceBusReceiver) -> list[bytes]:
    """Peek all messages of the queue from the start. By default the client peeks after the last one it received."""
    return [body(message) for message in receiver.peek_messages(100, sequence_number=1)]


def texts(values: Sequence[int]) -> list[bytes]:
    """Return a body for each number."""
    return [str(value).encode() for value in values]


@contextmanager
def running_service(folder: Path) -> Iterator[Served]:
    """Run the broker for the block."""
    with ExitStack() as stack:
        running = stack.enter_context(service(folder, "service", list(described())))
        url = running.ready()
        found = re.match(r"Endpoint=sb://localhost:(\d+);", running.out.read_text())
        assert found is not None, running.out.read_text()
        made = own_certificate(folder / "tls", "localhost", wall_time())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.certificate, made.key)
        https = stack.enter_context(relay(int(url.rpartition(":")[2]), context))
        amqps = stack.enter_context(relay(int(found[1]), context))
        certificate = folder / "tls" / CERTIFICATE
        yield Served(running, folder, int(found[1]), url, (https.port, amqps.port), certificate)
