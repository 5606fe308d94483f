"""A simulated Spark: tasks that fail, stall, are repeated and outlive their driver, and drivers that get lost."""

from __future__ import annotations

import asyncio
from random import Random

from oncebus.engine.folders import Folders
from oncebus.pipeline.driver import LocalDriver
from oncebus.pipeline.planning import Part
from oncebus.values.threads import Threads

SHARDS = 2
_IDLE, _LONG_IDLE = 0.003, 0.1
_RESTARTS = 40
_ATTEMPTS = 4


class Query:
    """One query. Its tasks run one attempt at a time, or two."""

    def __init__(self, driver: LocalDriver, threads: Threads, chance: Random) -> None:
        self._driver = driver
        self._threads = threads
        self._chance = chance

    async def step(self) -> bool:
        """Process one micro-batch. Return whether there was one. Raises the error of a task that failed for good."""
        most = self._chance.choice((1, 1 << 30, 1 << 30))
        batch = await self._threads.run(self._driver.plan, most)
        if batch is None:
            return False
        # Spark may lose its note that a batch is done. Then all of it runs again.
        for _ in range(2 if self._chance.random() < 0.03 else 1):
            await asyncio.gather(*(self._run(part, batch.number) for part in batch.parts))
        self._driver.finish(batch)
        return True

    async def _run(self, part: Part, batch: int) -> None:
        """Make attempts until one succeeds. Another may go on beside it, or later."""
        for attempt in range(_ATTEMPTS):
            if self._chance.random() < 0.04:
                # Nobody waits for this one.
                self._threads.run(self._driver.process, part, batch).add_done_callback(_look_at_result)
            try:
                await self._threads.run(self._driver.process, part, batch)
            except Exception:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


def _look_at_result(done: asyncio.Future[int]) -> None:
    if not done.cancelled():
        done.exception()


async def run_pipeline(folders: Folders, threads: Threads, chance: Random) -> None:
    """Run one query after another. A driver gets lost now and then; its tasks may go on for a while."""
    failures, beside = 0, threads.own("keys")
    while True:
        try:
            driver = await threads.run(lambda: LocalDriver(folders, shards=SHARDS, beside=beside))
            query, idle = Query(driver, threads, chance), _IDLE
            while chance.random() > 0.005:
                if await query.step():
                    idle = _IDLE
                else:
                    await asyncio.sleep(idle)
                    idle = min(2 * idle, _LONG_IDLE)
                failures = 0
        except Exception:
            failures += 1
            if failures > _RESTARTS:
                raise
            await asyncio.sleep(0.05)
