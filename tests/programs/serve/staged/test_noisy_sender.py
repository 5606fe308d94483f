"""Tests a quiet queue beside senders that overload the pipeline."""

from __future__ import annotations

import asyncio

from oncebus.broker.errors import ServerBusy
from oncebus.model.entities import Queue
from tests.broker.scenes import message
from tests.programs.serve.stage import Stage

SENDERS, BATCH, ROUNDS = 12, 500, 4


class Flood:
    """Senders to one queue that send again as soon as they get an answer."""

    def __init__(self, stage: Stage, queue: str) -> None:
        self._stage, self._queue = stage, queue
        self.is_over = False
        self.sent = self.refused = 0
        self.has_waited = False

    async def run(self) -> None:
        await asyncio.gather(self._watch(), *(self._send(number) for number in range(SENDERS)))

    async def _send(self, number: int) -> None:
        turn = 0
        while not self.is_over:
            turn += 1
            try:
                await self._stage.broker.send(
                    self._queue, [message(f"{number}.{turn}.{each}") for each in range(BATCH)]
                )
                self.sent += BATCH
            except ServerBusy:
                self.refused += BATCH
                await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        """Record whether the senders have to wait."""
        shares = self._stage.core.accounting.shares
        while not self.is_over:
            self.has_waited = self.has_waited or bool(shares.waiting)
            await asyncio.sleep(0.01)


def test_a_quiet_queue_works_beside_a_noisy_one(stage: Stage) -> None:
    stage.queue("noisy")
    stage.queue("calm", requires_duplicate_detection=True)
    flood = Flood(stage, "noisy")
    running = stage.start(flood.run())
    try:
        for number in range(ROUNDS):
            assert stage.client.send("calm", f"m{number}", "x") == 201
            assert stage.client.receive("calm", 60) == (f"m{number}", "x")
    finally:
        flood.is_over = True
        running.result(120)
    assert flood.has_waited or flood.refused
    stage.flow()
    counts = stage.run(stage.broker.counts("noisy"))
    assert counts.new == flood.sent
    stage.change(lambda catalogue, _: catalogue.delete(Queue(name="noisy")))
