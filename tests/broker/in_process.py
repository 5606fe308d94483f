"""A broker whose pipeline runs in the test's own process: the same source, detection and routing, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncebus.broker.broker import Broker
from oncebus.broker.clock import Clock
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.entities import Namespace, Tier
from oncebus.model.entities.descriptions import LONGEST_WINDOW
from oncebus.pipeline.driver import LocalDriver

SHARDS = 2


class FakeTime:
    """A clock that the test moves. It starts in 2026. `skew` is how wrong the machine's clock is set."""

    def __init__(self) -> None:
        self.now = 1_790_000_000_000_000
        self.skew = 0

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)

    def set_wrong(self, seconds: float) -> None:
        self.skew = round(seconds * 1_000_000)

    def clock(self, last: int = 0) -> Clock:
        return Clock(last, wall=lambda: self.now + self.skew, passed=lambda: self.now)


@asynccontextmanager
async def running_broker(
    data: Path,
    time: FakeTime | None = None,
    *,
    tier: Tier = Tier.STANDARD,
    pipeline: bool | LocalDriver = True,
    read_your_sends: float = 30.0,
    longest_window: int = LONGEST_WINDOW,
    **options: Any,
) -> AsyncIterator[Broker]:
    """Run a broker over a data folder, by default with its pipeline.

    Queries wait longer for earlier sends than in a real broker, so that a busy machine does not change their answers.
    """
    folders = Folders(data)
    clock = time.clock() if time is not None else None
    broker = await Broker.open(
        Engine.files(folders, SHARDS),
        namespace=Namespace(tier=tier, longest_window=longest_window),
        read_your_sends=read_your_sends,
        clock=clock,
        **options,
    )
    broker.start()
    chosen = LocalDriver(folders, shards=SHARDS) if pipeline is True else pipeline or None
    task = asyncio.create_task(chosen.run()) if chosen is not None else None
    try:
        yield broker
    finally:
        if task is not None:
            task.cancel()
            ended = await asyncio.gather(task, return_exceptions=True)
        await broker.close()
        if task is not None and not isinstance(ended[0], asyncio.CancelledError):
            # The test failed because the pipeline died.
            raise AssertionError("The pipeline failed") from ended[0]
