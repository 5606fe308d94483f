"""The server: listens for AMQP, with or without TLS, and manages the connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from oncebus.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from oncebus.amqp.connection import Connection
from oncebus.amqp.outcomes import AmqpError
from oncebus.broker.broker import Broker
from oncebus.model.access import AuthorizationRule, Guard, Issuer, NamespaceRules
from oncebus.protocols.listening import SECONDS_BETWEEN_WARNINGS, FirstBytes, Places, serve
from oncebus.protocols.servicebus.connection import ClientConnection
from oncebus.protocols.servicebus.credentials import Key
from oncebus.protocols.servicebus.fair_reading import FairReading
from oncebus.protocols.servicebus.front import ServiceBusFront
from oncebus.protocols.servicebus.limits import AmqpLimits
from oncebus.protocols.servicebus.receiver import Receiver
from oncebus.protocols.servicebus.sender import Sender
from oncebus.protocols.servicebus.session_receiver import SessionReceiver
from oncebus.protocols.servicebus.transport import AmqpProtocol, Flushes, Wire
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

_HOST = "localhost"
BEGINNING = b"AMQP"
"""The first bytes of every AMQP connection."""
CHECKED_AT_ONCE = 1000
"""After checking this many connections, links and tokens, the server lets other tasks run."""
MOST_SESSIONS = 5000
"""The maximum number of sessions per connection. Some clients begin one for each link, so links have no higher one."""


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """Counts of open connections and links, and of all connections so far."""

    connections: int
    senders: int
    receivers: int
    # The receivers that hold a session or wait for one.
    session_receivers: int
    connections_total: int


class KnownClients:
    """The authenticated connections, at most `most`.

    One key may take all places while nobody else needs one. When all are taken, a connection of a key with fewer places
    takes the one of the newest connection of the key with the most, until they have equally many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: dict[ClientConnection, Key | None] = {}
        # Of each key, the oldest connection first.
        self._of_key: dict[Key | None, dict[ClientConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, client: ClientConnection) -> bool:
        return client in self._keys

    def enter(self, client: ClientConnection, key: Key | None) -> ClientConnection | None:
        """Give a connection a place. Return the connection that has none now: another, this one, or None."""
        loser = None
        if len(self._keys) >= self._most:
            most = max(self._of_key.values(), key=len)
            if len(most) <= len(self._of_key.get(key, ())) + 1:
                return client
            loser = next(reversed(most))
            self.leave(loser)
        self._keys[client] = key
        self._of_key.setdefault(key, {})[client] = None
        return loser

    def leave(self, client: ClientConnection) -> None:
        """Free the place of a connection, if it has one."""
        if client in self._keys:
            key = self._keys.pop(client)
            own = self._of_key[key]
            del own[client]
            if not own:
                del self._of_key[key]


class ServiceBusServer:
    """Serves AMQP clients of Azure Service Bus over one broker."""

    def __init__(self, front: ServiceBusFront) -> None:
        self.front = front
        self._servers: list[asyncio.Server] = []
        self._clients: set[ClientConnection] = set()
        self._known = KnownClients(front.limits.connections)
        self._strangers = Places(front.limits.strangers, "AMQP connections without a token or key")
        self._warned = -SECONDS_BETWEEN_WARNINGS
        self._total = 0
        self._flushes = Flushes()
        self._reading = FairReading()
        self._watching: asyncio.Task[None] | None = None
        self._is_empty = asyncio.Event()

    async def start(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        others: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        """Accept connections on a socket. May be called for several sockets.

        With `others`, the socket serves two protocols: for a connection that does not begin with AMQP, `others` makes
        the protocol.
        """
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

        def make_protocol() -> asyncio.Protocol:
            if others is None:
                return self.make_protocol()
            return FirstBytes(BEGINNING, self.make_protocol, others, self._strangers)

        self._servers.append(await serve(listener, make_protocol, tls, self._strangers))

    async def stop(self) -> None:
        """Accept no more connections, close all connections, and wait a moment for the clients to disconnect."""
        for server in self._servers:
            server.close()
        for client in self._clients:
            client.close()
        seconds = self.front.limits.closing_seconds
        if self._clients:
            self._is_empty.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._is_empty.wait()
            except TimeoutError:
                for client in list(self._clients):
                    client.abort()
        self._strangers.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.front.tasks.drain(seconds)

    def cut(self) -> None:
        """Drop all connections at once, as a failing network does. Clients may connect again."""
        for client in list(self._clients):
            client.abort()

    def metrics(self) -> list[Metric]:
        """Return the metrics of the server."""
        counts = self.counts
        return [
            GaugeMetricFamily("oncebus_amqp_connections", "AMQP connections.", counts.connections),
            CounterMetricFamily(
                "oncebus_amqp_connections", "AMQP connections since the start.", counts.connections_total
            ),
            GaugeMetricFamily("oncebus_amqp_senders", "Senders over AMQP.", counts.senders),
            GaugeMetricFamily("oncebus_amqp_receivers", "Receivers over AMQP.", counts.receivers),
            GaugeMetricFamily(
                "oncebus_amqp_session_receivers",
                "Receivers over AMQP that hold a session or wait for one.",
                counts.session_receivers,
            ),
        ]

    @property
    def counts(self) -> ConnectionCounts:
        """Return the current counts."""
        links = [attached for client in self._clients for attached in client.links]
        return ConnectionCounts(
            connections=len(self._clients),
            senders=sum(isinstance(each, Sender) for each in links),
            receivers=sum(isinstance(each, Receiver) for each in links),
            session_receivers=sum(isinstance(each, SessionReceiver) for each in links),
            connections_total=self._total,
        )

    def make_protocol(self) -> AmqpProtocol:
        """Return a protocol for a new connection. The HTTP server may have accepted it, for a WebSocket."""
        name = self.front.broker.catalogue.namespace.name
        limits = self.front.limits
        connection = Connection(
            container_id=name,
            channel_max=MOST_SESSIONS - 1,
            idle_timeout_ms=round(limits.idle_seconds * 1000),
            most_links=limits.links,
            most_unsettled=limits.unsettled,
        )
        return AmqpProtocol(connection, self._client, flushes=self._flushes, reading=self._reading)

    def _client(self, connection: Connection, wire: Wire) -> ClientConnection:
        client = ClientConnection(self.front, connection, wire, self._gone, self._admit, self._demote)
        self._clients.add(client)
        self._strangers.enter(client)
        self._total += 1
        return client

    def _admit(self, client: ClientConnection) -> None:
        if client in self._known:
            return
        loser = self._known.enter(client, client.credentials.key)
        if loser is not client:
            self._strangers.leave(client)
        if loser is not None:
            if loser is not client:
                self._strangers.enter(loser)
            self._refuse(loser)

    def _demote(self, client: ClientConnection) -> None:
        """Count a client as unauthenticated: its key was rotated or its tokens expired. It stays connected."""
        if client in self._known:
            self._known.leave(client)
            self._strangers.enter(client)

    def _refuse(self, client: ClientConnection) -> None:
        """Close a client because there are too many of its key. Until it disconnects, it counts as unauthenticated."""
        most = self.front.limits.connections
        self._warn(most)
        client.refuse(AmqpError(RESOURCE_LIMIT_EXCEEDED, f"The namespace already has {most} connections."))

    def _warn(self, most: int) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._warned + SECONDS_BETWEEN_WARNINGS:
            self._warned = now
            log.warning("AMQP connections are refused: the limit of %d is reached", most)

    def _gone(self, client: ClientConnection) -> None:
        self._clients.discard(client)
        self._known.leave(client)
        self._strangers.leave(client)
        if not self._clients:
            self._is_empty.set()

    async def _watch(self) -> None:
        """Check links at intervals, because nothing signals that the catalogue has changed or a token has expired."""
        catalogue, rules = self.front.broker.catalogue, self._rules(())
        while True:
            await asyncio.sleep(self.front.limits.look_seconds)
            now, found = self.front.now(), self._rules(rules)
            has_changed = self.front.broker.catalogue is not catalogue or found != rules
            catalogue, rules = self.front.broker.catalogue, found
            checked = 0
            for client in list(self._clients):
                client.make_room()
                if has_changed or client.deadline <= now:
                    client.check(has_changed)
                    checked += client.weight
                    if checked >= CHECKED_AT_ONCE:
                        checked = 0
                        # Let other tasks run.
                        await asyncio.sleep(0)

    def _rules(self, known: tuple[AuthorizationRule, ...]) -> tuple[AuthorizationRule, ...]:
        """Return the current rules of the namespace, or `known` if they cannot be read."""
        try:
            return self.front.guard.namespace_rules()
        except OncebusError as error:
            log.error("The keys cannot be read: %s", error)
            return known


def make_server(
    broker: Broker,
    *,
    namespace_rules: NamespaceRules,
    host: str | None = None,
    issuer: Issuer | None = None,
    limits: AmqpLimits | None = None,
) -> ServiceBusServer:
    """Return a server over a broker. With `host`, tokens must be for that host; those of `issuer` are accepted too."""
    chosen = limits or AmqpLimits()
    guard = Guard(namespace_rules, lambda: broker.catalogue, broker.clock.token_time, host, issuer)
    return ServiceBusServer(ServiceBusFront(broker, guard, chosen, host or _HOST))
