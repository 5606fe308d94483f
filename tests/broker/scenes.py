"""A broker for tests: short calls for entities, messages by their ids, time and chores under control of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.broker.core import Core
from oncebus.broker.sending import Incoming
from oncebus.engine.folders import Folders
from oncebus.engine.store import Action, Counts, Duplicate, Mode, Outcome, Settlement, SubQueue
from oncebus.model.entities import Queue, Rule, Subscription, Tier, Topic
from oncebus.model.entities.names import subscription_path
from oncebus.pipeline.driver import LocalDriver
from tests.broker.in_process import SHARDS, FakeTime, running_broker

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
DEAD = SubQueue.DEAD_LETTER
TRANSFER_DEAD = SubQueue.TRANSFER_DEAD_LETTER


def message(
    identity: amqp.Id | None = None, body: bytes = b"", user: dict[str, object] | None = None, **more: Any
) -> Incoming:
    """Return a message as a protocol would decode it. Properties have the names of `amqp.Properties`."""
    fields = {name: more.pop(name) for name in ("subject", "correlation_id", "to") if name in more}
    properties = amqp.Properties(message_id=identity, group_id=more.get("session"), **fields)
    head = amqp.head.encode_head(properties, user or {})
    return Incoming(head, amqp.encode_body(body), None if identity is None else amqp.id_text(identity), **more)


@dataclass
class Scene:
    """A running broker. Its pipeline runs unless paused; chores run when the test calls them."""

    broker: Broker
    core: Core
    folders: Folders
    pipeline: LocalDriver
    time: FakeTime

    # Entities

    async def queue(self, name: str = "q", *, detects: bool = False, **properties: Any) -> Queue:
        queue = Queue(name=name, requires_duplicate_detection=detects, **properties)
        await self.broker.change(lambda catalogue, now: catalogue.create(queue, now))
        return self.broker.catalogue.queue(name)

    async def topic(self, name: str = "t", *, detects: bool = False, **properties: Any) -> Topic:
        topic = Topic(name=name, requires_duplicate_detection=detects, **properties)
        await self.broker.change(lambda catalogue, now: catalogue.create(topic, now))
        return self.broker.catalogue.topic(name)

    async def subscription(
        self, name: str = "s", *, topic: str = "t", rules: Sequence[Rule] | None = None, **properties: Any
    ) -> str:
        made = Subscription(topic=topic, name=name, **properties)
        await self.broker.change(lambda catalogue, now: catalogue.create(made, now, rules))
        return subscription_path(topic, name)

    async def delete_queue(self, name: str = "q") -> None:
        await self.broker.change(lambda catalogue, now: catalogue.delete(Queue(name=name)))

    # Messages

    async def send(self, path: str, *messages: str | Incoming) -> list[int]:
        return await self.broker.send(path, [message(each) if isinstance(each, str) else each for each in messages])

    async def receive(
        self, path: str = "q", count: int = 100, sub_queue: SubQueue = SubQueue.MAIN, **options: Any
    ) -> list[Received]:
        """Receive messages after everything sent has come through the pipeline."""
        await self.flow()
        return await self.broker.receive(Address(path, sub_queue), count, **options)

    async def taken(self, path: str = "q", sub_queue: SubQueue = SubQueue.MAIN) -> list[str]:
        """Receive and delete all messages. Return their ids."""
        return ids(await self.receive(path, sub_queue=sub_queue, mode=Mode.RECEIVE_AND_DELETE))

    async def peeked(self, path: str = "q", sub_queue: SubQueue = SubQueue.MAIN) -> list[str]:
        await self.flow()
        return ids(await self.broker.peek(Address(path, sub_queue), 0, 1000))

    async def settle(self, path: str, received: Received, action: Action, **more: Any) -> Outcome:
        token = received.message.token
        assert token is not None
        address = Address(path, SubQueue(received.message.sub_queue))
        return (await self.broker.settle(address, [Settlement(action, token, **more)]))[0]

    async def counts(self, path: str = "q") -> Counts:
        await self.flow()
        return await self.broker.counts(path)

    async def duplicates(self, path: str = "q") -> list[Duplicate]:
        await self.flow()
        return await self.broker.duplicates(path)

    # Time

    async def flow(self) -> None:
        """Wait until everything durable is visible."""
        assert await self.core.progress.wait_for(self.core.entrance.acceptor.last_commit, 60), (
            self.broker.pipeline.trouble
        )

    async def rounds(self, count: int = 1, trouble: str | None = None) -> None:
        """Do the chores and wait until requeued messages are visible. `trouble` is how the expected trouble begins."""
        await self.flow()
        for _ in range(count):
            for chore in self.core.chores.all:
                chore.next = float("-inf")
            await self.core.chores.round()
            found = self.core.chores.trouble
            assert (found is None) if trouble is None else (found or "").startswith(trouble), found
            await self.flow()

    async def later(self, seconds: float, rounds: int = 1) -> None:
        """Let time pass, then do the chores."""
        self.time.advance(seconds)
        await self.rounds(rounds)


def ids(received: Sequence[Received]) -> list[str]:
    return [each.message.message_id for each in received]


def sequences(received: Sequence[Received]) -> list[int]:
    return [each.message.sequence for each in received]


@asynccontextmanager
async def scene(
    data: Path, time: FakeTime | None = None, *, tier: Tier = Tier.STANDARD, **options: Any
) -> AsyncIterator[Scene]:
    """Run a broker over a folder, which may be new."""
    time = time or FakeTime()
    pipeline = LocalDriver(Folders(data), shards=SHARDS)
    async with running_broker(data, time, tier=tier, pipeline=pipeline, **options) as broker:
        # The test does the rounds itself.
        broker._core._tasks.pop().cancel()
        yield Scene(broker, broker._core, Folders(data), pipeline, time)


def play(data: Path, plot: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    """Run a test's plot with a broker of its own."""

    async def run() -> None:
        async with scene(data, **options) as stage:
            await plot(stage)

    asyncio.run(run())
