"""Gateway and pipeline killed at random moments under load, again and again. `test_service` does so a few times."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from .clients import Client
from .load import ENTITIES, Load, kill_parts
from .services import service


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_parts_killed_a_hundred_times_under_load(tmp_path: Path, seed: int) -> None:
    """Twenty times in each of five histories."""
    chance = random.Random(seed)
    with service(tmp_path, "kills", ENTITIES) as running:
        with Load(Client(running.ready(), tmp_path / "data"), seed).under_way() as record:
            while record.kills < 20:
                time.sleep(chance.uniform(0.2, 6.0))
                names = chance.choice([("gateway",), ("pipeline",), ("gateway", "pipeline")])
                record.kills += kill_parts(running, names)
            time.sleep(2.0)
        print(f"seed {seed}: {record}")
        record.check()
        assert running.process.poll() is None
