"""Kafka to Delta: the program of the page is killed and started again, and the table has every order once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import maven

from .kafka import Kafka
from .orders import Shop
from .pages import KAFKA_TO_DELTA
from .recipe import Recipe

WHY_NOT = maven.missing("Recipes")

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def kill_again_and_again(kafka: Kafka, folder: Path, *, kills: int, seed: int) -> None:
    chance, shop, topic = random.Random(seed), Shop(seed), f"orders-{seed}"
    kafka.topic(topic, partitions=2)
    changes = {"localhost:9092": kafka.address, '"subscribe", "orders"': f'"subscribe", "{topic}"', "100000": "40"}
    recipe = Recipe(KAFKA_TO_DELTA, folder, changes)
    try:
        for _ in range(kills):
            kafka.send(topic, shop.wave(120))
            recipe.start()
            recipe.kill_soon(chance)
        kafka.send(topic, shop.wave(60))
        expected = shop.kept()
        found = recipe.finish(len(expected))
    finally:
        recipe.kill()
    assert recipe.kills == kills
    assert found == sorted(expected)
    print(f"\nseed {seed}: {kills} kills, {len(shop.sent)} messages, {len(found)} orders, each once")


def test_killed_three_times(kafka: Kafka, tmp_path: Path) -> None:
    kill_again_and_again(kafka, tmp_path, kills=3, seed=random.randrange(10, 10**6))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2))
def test_killed_twenty_times(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    """Each of two shops is killed ten times."""
    kill_again_and_again(kafka, tmp_path, kills=10, seed=seed)
