"""Load in sessions: one sender per session, and receivers that accept any free session and receive some messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Outcome, Settlement
from tests.broker.scenes import message
from tests.programs.serve.stage import Stage

NAMES = [f"session-{number}" for number in range(6)]
RECEIVERS = 3
LEAST = 11
"""The least number of messages per session, however short the test is."""


class Sessions:
    """Records the ids that were sent and completed in each session, in order. Works across restarts of the gateway."""

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
        """Receive the rest of the messages, for at most some seconds. `check` finds those that are missing."""

        def is_done() -> bool:
            return sum(map(len, self.sent.values())) <= sum(map(len, self.completed.values()))

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._receive(is_done) for _ in range(RECEIVERS)))

    def check(self) -> None:
        assert self.completed == self.sent
        assert min(map(len, self.sent.values())) >= LEAST
        # No message is left, and none arrives later.
        self._stage.flow()
        assert self._stage.client.metric("messages", entity=self._queue.path) == 0
        assert self._stage.client.metric("messages_duplicates_total", entity=self._queue.path) > 0

    async def _send(self, name: str, over: asyncio.Event) -> None:
        while not over.is_set() or len(self.sent[name]) < LEAST:
            ids = [f"{name}/{len(self.sent[name]) + at}" for at in range(self._chance.randint(1, 3))]
            # Sometimes send twice, like a client that lost the answer.
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
