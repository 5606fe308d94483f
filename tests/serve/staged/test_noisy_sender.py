"""One sender that sends more than the pipeline can take, beside others."""

from __future__ import annotations

import asyncio

from broker.scenes import message
from oncebus.broker.errors import ServerBusy
from oncebus.broker.shares import DELAY, work_of
from oncebus.durations import SECOND
from serve.stage import Stage

SENDERS, BATCH, ROUNDS = 12, 500, 12
LEAST = 512 << 10


class Flood:
    """Senders of one queue that never wait longer than for their answers."""

    def __init__(self, stage: Stage, queue: str) -> None:
        self._stage, self._queue = stage, queue
        self.is_over = False
        self.sent = self.refused = 0
        self.largest, self.most = 0, float(LEAST)
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
        """Note how much waits for the pipeline, and how much was to wait at most."""
        shares = self._stage.core.shares
        while not self.is_over:
            self.most = max(self.most, shares.rate * DELAY / SECOND)
            self.largest = max(self.largest, shares._work.total)
            self.has_waited = self.has_waited or bool(shares.waiting)
            await asyncio.sleep(0.01)


def test_a_quiet_queue_goes_on_beside_a_noisy_one(stage: Stage) -> None:
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
    # Beside what all entities may have waiting, each may have its part.
    assert flood.largest <= 2 * flood.most + work_of(BATCH, 100 * BATCH), (flood.largest, flood.most)
    stage.flow()
    counts = stage.run(stage.broker.counts("noisy"))
    assert counts.accepted == flood.sent
    stage.change(lambda catalogue, _: catalogue.delete_queue("noisy"))
