"""A driver without Spark: attempts in any order and repeated, and drivers that are dropped, give each message once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.folders import Folders
from oncebus.engine.store import Mode
from oncebus.model.entities import Queue
from oncebus.pipeline import planning
from oncebus.pipeline.driver import LocalDriver
from tests.broker.in_process import SHARDS, running_broker
from tests.broker.scenes import ids, message


@pytest.mark.parametrize("seed", range(4))
def test_attempts_at_random_give_each_message_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(planning, "ROWS_FOR_A_TASK", 2)
    chance = random.Random(seed)

    async def play() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            queue = Queue(name="q", requires_duplicate_detection=True)
            await broker.change(lambda catalogue, now: catalogue.create(queue, now))
            for number in range(10):
                await broker.send("q", [message(str(each)) for each in range(number, number + 4)])
            driver = LocalDriver(Folders(tmp_path), shards=SHARDS)
            while (batch := driver.plan(most_commits=2)) is not None:
                assert len(batch.parts) == SHARDS
                attempts = batch.parts * chance.randint(1, 2)
                chance.shuffle(attempts)
                for part in attempts:
                    driver.process(part, batch.number)
                    if chance.random() < 0.2:
                        driver = LocalDriver(Folders(tmp_path), shards=SHARDS)
                        break
                else:
                    driver.finish(batch)
            await broker.pipeline.wait_for(broker.pipeline.last_commit, 60)
            received = await broker.receive(Address("q"), 100, mode=Mode.RECEIVE_AND_DELETE)
            assert ids(received) == [str(number) for number in range(13)]

    asyncio.run(play())
