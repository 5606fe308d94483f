"""A broker whose pipeline runs in the test's own process: the same source, detection and routing, without Spark."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncebus.broker.broker import Broker
from oncebus.broker.clock import Clock
from oncebus.engine.folders import Folders
from oncebus.ledger import Ledger, Owner, Writer
from oncebus.model.entities import Namespace, Tier
from oncebus.model.entities.descriptions import LONGEST_WINDOW
from oncebus.pipeline.batch import TaskFolders, process_part
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.planning import Planner
from oncebus.pipeline.query import resume

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


class InProcessPipeline:
    """Does what Spark's tasks do, without Spark: processes durable commits, one micro-batch at a time."""

    def __init__(self, folders: Folders) -> None:
        self.is_paused = False
        self._planner = Planner(folders.inbox, folders.catalogue, shards=SHARDS, tasks=SHARDS)
        self._ledger = Ledger.open(folders.ledger)
        self._ledger.describe_or_check(KEY_SIGNATURE)
        self._batch = 0
        self._after, drafts, follows = resume(folders.outbox, self._ledger, is_local=True)
        self._folders = TaskFolders(str(folders.inbox), str(folders.catalogue), drafts)
        self._writer = Writer(uuid.uuid4().hex, uuid.uuid4().hex, Owner.this_process(), follows)

    def step(self, most_commits: int = 1 << 62) -> bool:
        """Process one micro-batch. Return whether there was one."""
        last = min(self._planner.last_commit(self._after), self._after + most_commits)
        for part in self._planner.parts(self._after + 1, last):
            process_part(part, self._folders, self._ledger, self._writer, self._batch)
        if last == self._after:
            return False
        self._after = last
        self._batch += 1
        return True

    async def run(self) -> None:
        while True:
            if self.is_paused or not self.step():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running_broker(
    data: Path,
    time: FakeTime | None = None,
    *,
    tier: Tier = Tier.STANDARD,
    pipeline: bool | InProcessPipeline = True,
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
        folders,
        shards=SHARDS,
        namespace=Namespace(tier=tier, longest_window=longest_window),
        read_your_sends=read_your_sends,
        clock=clock,
        **options,
    )
    broker.start()
    chosen = InProcessPipeline(folders) if pipeline is True else pipeline or None
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
