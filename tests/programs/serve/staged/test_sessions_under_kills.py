"""Tests the order within sessions while the pipeline is killed many times. `test_replay` kills it once."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tests.programs.serve.stage import PATIENCE, Stage

from .sessions import Sessions

KILLS = 10


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2))
def test_order_within_a_session_survives_many_kills(stage: Stage, seed: int) -> None:
    sessions, chance = Sessions(stage, f"sessions-{seed}", seed), random.Random(seed)

    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            await asyncio.to_thread(stage.signal_pipeline, signal.SIGKILL)
            await asyncio.to_thread(stage.start_pipeline)
            # Sometimes kill it again before it has processed anything.
            if chance.random() < 0.8:
                await stage.core.progress.wait_for(stage.core.entrance.acceptor.last_commit, PATIENCE)

    stage.run(sessions.run_during(kill()), KILLS * PATIENCE)
    stage.run(sessions.receive_all(KILLS * PATIENCE), KILLS * PATIENCE)
    print(f"{KILLS} kills: {sum(map(len, sessions.sent.values()))} messages completed in the order they were sent")
    sessions.check()
