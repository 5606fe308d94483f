"""Load in sessions: a sender for each, and receivers that take whichever is free, some messages of it at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from broker.scenes import message
from oncebus.broker.addresses import Address
from oncebus.store import Action, Outcome, Settlement
from serve.stage import Stage

NAMES = [f"session-{number}" for number in range(6)]
RECEIVERS = 3
LEAST = 11
"""So many are sent in each session, however short it all is."""


class Sessions:
    """What was sent and what was completed in each session, in that order. Goes on with whatever gateway is open."""

    def __init__(self, stage: Stage, queue: str, seed: int) -> None:
        self.sent: dict[str, list[str]] = {name: [] for name in NAMES}
        self.completed: dict[str, list[str]] = {name: [] for name in NAMES}
        self._stage, self._queue = stage, Address(queue)
        self._chance = random.Random(seed)
        stage.queue(queue, requires_duplicate_detection=True, requires_session=True)

    async def run_during(self, something: Awaitable[None]) -> None:
        """Send and receive while something happens."""
        over = asyncio.Event()
        tasks = [self._send(name, over) for name in NAMES] + [self._receive(over.is_set) for _ in range(RECEIVERS)]
        running = asyncio.gather(*tasks)
        await something
        over.set()
        await running

    async def receive_all(self, seconds: float) -> None:
        """Receive what is still to come; `check` tells what has not."""

        def is_done() -> bool:
            return sum(map(len, self.sent.values())) <= sum(map(len, self.completed.values()))

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._receive(is_done) for _ in range(RECEIVERS)))

    def check(self) -> None:
        assert self.completed == self.sent
        assert min(map(len, self.sent.values())) >= LEAST
        # Nothing is left, and nothing comes after.
        self._stage.flow()
        assert self._stage.client.metric("messages", entity=self._queue.path) == 0
        assert self._stage.client.metric("messages_duplicates_total", entity=self._queue.path) > 0

    async def _send(self, name: str, over: asyncio.Event) -> None:
        while not over.is_set() or len(self.sent[name]) < LEAST:
            ids = [f"{name}/{len(self.sent[name]) + at}" for at in range(self._chance.randint(1, 3))]
            # Now and then once more, as a client does whose answer was lost.
            for _ in range(self._chance.choice([1, 1, 1, 2])):
                await self._stage.broker.send(self._queue.path, [message(each, session=name) for each in ids])
            self.sent[name] += ids
            await asyncio.sleep(self._chance.random() * 0.05)

    async def _receive(self, is_over: Callable[[], bool]) -> None:
        broker, queue = self._stage.broker, self._queue
        while not is_over():
            lock = await broker.accept_session(queue, None, wait=0.2)
            if lock is None:
                continue
            for _ in range(self._chance.randint(1, 4)):
                found = await broker.receive(queue, self._chance.randint(1, 5), session=lock, wait=0.05)
                settlements = [Settlement(Action.COMPLETE, each.message.token or b"") for each in found]
                assert await broker.settle(queue, settlements, lock) == [Outcome.DONE] * len(found)
                self.completed[lock.session] += [each.message.message_id for each in found]
            await broker.release_session(lock)
