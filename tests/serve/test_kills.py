"""Gateway and pipeline killed at random moments under load, again and again. `test_service` does so a few times."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from .clients import Client, all_end, everything_below
from .load import ENTITIES, Load, check_order, kill_parts
from .services import opened, service


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_parts_killed_a_hundred_times_under_load(tmp_path: Path, seed: int) -> None:
    """Twenty times in each of five histories."""
    chance = random.Random(seed)
    with service(tmp_path, "kills", ENTITIES) as running:
        with Load(Client(running.ready(), tmp_path / "data"), seed, pause=0.01).under_way() as record:
            while record.kills < 20:
                time.sleep(chance.uniform(0.2, 6.0))
                names = chance.choice([("gateway",), ("pipeline",), ("gateway", "pipeline")])
                record.kills += kill_parts(running, names, alone=chance.random() < 0.5)
            time.sleep(2.0)
        print(f"seed {seed}: {record}")
        record.check()
        # What watches the process that started it ends with it.
        below = everything_below(running.process.pid)
        running.process.kill()
        running.process.wait()
        all_end(below, "all end when the supervisor is killed")

    async def look() -> None:
        async with opened(tmp_path / "data") as broker:
            await check_order(broker, record.sessions)

    asyncio.run(look())
