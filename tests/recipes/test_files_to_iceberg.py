"""Files to Iceberg: the program of the page is killed and started again, and the table has every order once."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import maven

from .orders import Order, Shop
from .pages import FILES_TO_ICEBERG
from .recipe import Recipe

WHY_NOT = maven.missing("Recipes")

pytestmark = [pytest.mark.torture, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


def deliver(folder: Path, number: int, orders: Iterable[Order]) -> None:
    """Write a file of JSON lines. Spark reads files in the order of their times."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{number:06d}"
    lines = ({"id": each.id, "at": each.text_of_time, "body": each.body} for each in orders)
    hidden.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.utime(hidden, (1_000_000 + number, 1_000_000 + number))
    hidden.rename(folder / f"{number:06d}.json")


@pytest.mark.parametrize("kills", [1, 10])
def test_killed(tmp_path: Path, seed: int, kills: int) -> None:
    chance, shop = random.Random(seed), Shop(seed)
    recipe = Recipe(FILES_TO_ICEBERG, tmp_path, {'maxFilesPerTrigger", 100': 'maxFilesPerTrigger", 1'})
    files = 0
    try:
        for last in [False] * kills + [True]:
            for _ in range(3):
                deliver(recipe.data / "in", files, shop.wave(30))
                files += 1
            if not last:
                recipe.start()
                recipe.kill_soon(chance)
        expected = shop.kept()
        found = recipe.finish(len(expected))
    finally:
        recipe.kill()
    assert recipe.kills == kills
    assert found == sorted(expected)
    print(f"\nseed {seed}: {kills} kills, {files} files, {len(shop.sent)} rows, {len(found)} orders, each once")
