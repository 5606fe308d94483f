"""The order within each session, whatever happens to the pipeline meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from broker.scenes import message
from oncebus.broker.addresses import Address
from oncebus.store import Action, Outcome, Settlement
from serve.stage import Stage

SESSIONS = [f"session-{number}" for number in range(6)]
RECEIVERS = 3


class Load:
    """A sender for each session, and receivers that take whichever session is free, some messages of it at a time."""

    def __init__(self, stage: Stage, queue: str, seed: int) -> None:
        self.sent: dict[str, list[str]] = {session: [] for session in SESSIONS}
        self.completed: dict[str, list[str]] = {session: [] for session in SESSIONS}
        self._broker, self._queue = stage.broker, Address(queue)
        self._chance = random.Random(seed)
        self._has_ended = False

    async def run(self, killing: asyncio.Future[None]) -> None:
        """Until the kills are over and all that was sent has been completed."""
        senders = [asyncio.create_task(self._send(session)) for session in SESSIONS]
        receivers = [asyncio.create_task(self._receive()) for _ in range(RECEIVERS)]
        await killing
        self._has_ended = True
        await asyncio.gather(*senders, *receivers)

    @property
    def is_done(self) -> bool:
        return self._has_ended and sum(map(len, self.sent.values())) <= sum(map(len, self.completed.values()))

    async def _send(self, session: str) -> None:
        while not self._has_ended:
            names = [f"{session}/{len(self.sent[session]) + at}" for at in range(self._chance.randint(1, 3))]
            # Now and then once more, as a client does whose answer was lost.
            for _ in range(self._chance.choice([1, 1, 1, 2])):
                await self._broker.send(self._queue.path, [message(name, session=session) for name in names])
            self.sent[session] += names
            await asyncio.sleep(self._chance.random() * 0.05)

    async def _receive(self) -> None:
        while not self.is_done:
            lock = await self._broker.accept_session(self._queue, None, wait=0.2)
            if lock is None:
                continue
            for _ in range(self._chance.randint(1, 4)):
                found = await self._broker.receive(self._queue, self._chance.randint(1, 5), session=lock, wait=0.05)
                settlements = [Settlement(Action.COMPLETE, each.message.token or b"") for each in found]
                outcomes = await self._broker.settle(self._queue, settlements, lock)
                assert outcomes == [Outcome.DONE] * len(found)
                self.completed[lock.session] += [each.message.message_id for each in found]
            await self._broker.release_session(lock)


def kill_under_load(stage: Stage, queue: str, kills: int, seed: int) -> Load:
    stage.queue(queue, requires_duplicate_detection=True, requires_session=True)
    load, chance = Load(stage, queue, seed), random.Random(seed)

    async def kill() -> None:
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            await asyncio.to_thread(stage.signal_pipeline, signal.SIGKILL)
            await asyncio.to_thread(stage.start_pipeline)
            # Some are killed again before they have judged anything.
            if chance.random() < 0.8:
                await stage.core.progress.wait_for(stage.core.acceptor.last_commit, 120)

    async def run() -> None:
        async with asyncio.timeout(60 + 60 * kills):
            await load.run(asyncio.ensure_future(kill()))

    stage.run(run(), 100 + 60 * kills)
    return load


def check(stage: Stage, queue: str, load: Load) -> None:
    assert load.completed == load.sent
    assert min(map(len, load.sent.values())) > 10
    # Nothing is left, and nothing comes after.
    stage.flow()
    assert stage.client.metric("messages", entity=queue) == 0
    assert stage.client.metric("messages_duplicates_total", entity=queue) > 0


def test_order_within_a_session_survives_a_kill(stage: Stage) -> None:
    check(stage, "sessions", kill_under_load(stage, "sessions", 1, random.randrange(10**6)))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2))
def test_order_within_a_session_survives_many_kills(stage: Stage, seed: int) -> None:
    queue = f"sessions-{seed}"
    load = kill_under_load(stage, queue, 10, seed)
    print(f"10 kills: sent and completed in order: {sum(map(len, load.sent.values()))}")
    check(stage, queue, load)
