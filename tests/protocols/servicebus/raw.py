"""A client that sends the exact frames of a test to the dialect over a real broker, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from oncebus import amqp
from oncebus.amqp.connection import Connection
from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.head import Properties
from oncebus.amqp.message import AmqpValue
from oncebus.amqp.performatives import Attach, Detach, Disposition, Performative, Source, Target, Transfer
from oncebus.broker.broker import Broker
from oncebus.engine.folders import Folders
from oncebus.model.access import Issuer, make_token
from oncebus.model.entities import Queue
from oncebus.pipeline.driver import LocalDriver
from oncebus.protocols.servicebus import AmqpLimits, ServiceBusServer, make_server
from oncebus.protocols.servicebus.connection import ClientConnection
from oncebus.protocols.servicebus.transport import Wire
from oncebus.values.durations import HOUR
from tests.amqp.client import BEGIN, OPEN, Sent, credit, frames, receiver, sender, transfer, written
from tests.broker.in_process import SHARDS, FakeTime, running_broker

from .bus import NAMESPACE, PATIENCE, ROOT

T = TypeVar("T")


class Here(Wire):
    """Stands in for the transport."""

    def __init__(self) -> None:
        self.remote = "here"
        self.is_paused = False
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True

    def flush(self) -> None:
        pass

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class RawClient:
    """One connection with one session, signed in as root by default."""

    def __init__(self, server: ServiceBusServer, *, is_signed_in: bool = True, hostname: str | None = None) -> None:
        self.connection = Connection(container_id="server")
        self.wire = Here()
        self.peer = ClientConnection(server.front, self.connection, self.wire, lambda _: None)
        if is_signed_in:
            self.peer.credentials.put(
                make_token("sb://localhost/", ROOT.name, ROOT.primary_key, server.front.now() + HOUR)
            )
            self.connection.trust()
        self._sent: list[Sent] = []
        self._next = 0
        self._raw(AMQP_HEADER)
        self.do(replace(OPEN, hostname=hostname), BEGIN)
        assert b"".join(self.connection.output()).startswith(AMQP_HEADER)

    def do(self, *performatives: Performative) -> None:
        """Send all these frames at once."""
        self._raw(b"".join(written(each) for each in performatives))

    def transfer(self, *payloads: bytes, handle: int = 0, **fields: Any) -> list[int]:
        """Transfer all payloads at once and return their delivery ids."""
        ids = list(range(self._next, self._next + len(payloads)))
        self._next += len(payloads)
        self._raw(
            b"".join(
                written(transfer(number, handle, delivery_tag=number.to_bytes(4), **fields), payload)
                for number, payload in zip(ids, payloads, strict=True)
            )
        )
        return ids

    def part(self, payload: bytes, *, more: bool, **fields: Any) -> None:
        """Transfer the next piece of a delivery. Without `more` it is the last."""
        number = self._next
        self._next += 0 if more else 1
        self._raw(written(transfer(number, delivery_tag=number.to_bytes(4), more=more, **fields), payload))

    def lose(self) -> None:
        """Lose the transport."""
        self.peer.on_events(self.connection.end_lost())
        self.peer.on_lost()

    async def next(self, kind: type[T]) -> tuple[T, bytes]:
        """Return the next frame of a kind, skipping others before it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._sent += frames(b"".join(self.connection.output()))
                while self._sent:
                    sent = self._sent.pop(0)
                    if isinstance(sent.performative, kind):
                        return sent.performative, sent.payload
                await asyncio.sleep(0.001)

    async def attached(self, attach: Attach, given: int = 0) -> Attach:
        """Attach a link, with `given` credit for a receiver, and return the answer."""
        self.do(attach)
        answer, _ = await self.next(Attach)
        if given:
            self.do(credit(given, attach.handle))
        return answer

    async def refused(self, attach: Attach) -> tuple[str, str | None]:
        """Attach a link that must be refused, and return the condition and the text."""
        self.do(attach)
        detach, _ = await self.next(Detach)
        assert detach.error is not None
        self.do(Detach(handle=attach.handle, closed=True))
        return detach.error.condition, detach.error.description

    async def outcomes(self, count: int) -> dict[int, Any]:
        """Return the outcomes of `count` deliveries, by id."""
        found: dict[int, Any] = {}
        while len(found) < count:
            disposition, _ = await self.next(Disposition)
            assert disposition.settled
            for number in range(disposition.first, (disposition.last or disposition.first) + 1):
                found[number] = disposition.state
        return found

    async def received(self, count: int) -> list[tuple[Transfer, bytes]]:
        """Return the next `count` transfers."""
        return [await self.next(Transfer) for _ in range(count)]

    def _raw(self, data: bytes) -> None:
        events = self.connection.receive(data)
        while events:
            self.peer.on_events(events)
            events = self.connection.receive(b"")


class Stage:
    """A broker and a server for one test, with a clock that the test moves."""

    def __init__(self, broker: Broker, server: ServiceBusServer, time: FakeTime, pipeline: LocalDriver) -> None:
        self.broker, self.server, self.time, self.pipeline = broker, server, time, pipeline

    def client(self, **options: Any) -> RawClient:
        return RawClient(self.server, **options)

    async def queue(self, name: str = "orders", **options: Any) -> None:
        await self.broker.change(lambda catalogue, now: catalogue.create(Queue(name=name, **options), now))


def to(address: str | None, name: str = "s", handle: int = 0, **fields: Any) -> Attach:
    """Return the attach of a sender."""
    return sender(name, handle, target=Target(address), **fields)


def of(address: str | None, name: str = "r", handle: int = 0, **fields: Any) -> Attach:
    """Return the attach of a receiver."""
    source = fields.pop("source", None) or Source(address)
    return receiver(name, handle, source=source, **fields)


def message(body: bytes = b"x", **properties: Any) -> bytes:
    """Return an encoded message."""
    return b"".join(amqp.encode_message(Properties(**properties), None, body))


def request(operation: str, body: Any, own: dict[str, object] | None = None, **properties: Any) -> bytes:
    """Return an encoded request."""
    head = {"operation": operation, **(own or {})}
    return b"".join(amqp.encode_message(Properties(**properties), head, AmqpValue(body)))


@asynccontextmanager
async def _stage(data: Path, limits: AmqpLimits | None, issuer: Issuer | None) -> AsyncIterator[Stage]:
    time = FakeTime()
    pipeline = LocalDriver(Folders(data), shards=SHARDS)
    async with running_broker(data, time, pipeline=pipeline) as broker:
        server = make_server(broker, namespace_rules=lambda: NAMESPACE, issuer=issuer, limits=limits)
        yield Stage(broker, server, time, pipeline)
        await server.stop()


def play(
    data: Path,
    scenario: Callable[[Stage], Awaitable[None]],
    limits: AmqpLimits | None = None,
    issuer: Issuer | None = None,
) -> None:
    """Run a scenario on its own stage, which has the queue `orders`."""

    async def run() -> None:
        async with _stage(data, limits, issuer) as stage:
            await stage.queue()
            await scenario(stage)

    asyncio.run(run())
