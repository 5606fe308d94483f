"""Kafka to Delta: the program of the page is killed and started again, and the table has every order once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests import maven
from tests.docs.pages import blocks, page
from tests.programs.serve.programs import until

from .kafka import Kafka
from .orders import Shop
from .pages import KAFKA_TO_DELTA
from .recipe import LIMIT, Recipe

WHY_NOT = maven.missing("Recipes")

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def with_both_tables() -> str:
    """Return the program with the other end that the page shows, which writes the duplicates too."""
    first, end = (block.text for block in blocks(KAFKA_TO_DELTA.name) if block.language == "python")
    return first.partition("query = (")[0] + end


def rows_of(table: Path) -> int:
    """Return how many rows a table has to which rows were only added."""
    lines = [line for log in table.glob("_delta_log/*[0-9].json") for line in log.read_text().splitlines()]
    added = [json.loads(line)["add"] for line in lines if '"add":' in line]
    return sum(json.loads(each["stats"])["numRecords"] for each in added)


def changes_for(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"localhost:9092": kafka.address, '"subscribe", "orders"': f'"subscribe", "{topic}"', "100000": "25"}


def kill_again_and_again(kafka: Kafka, folder: Path, *, kills: int, seed: int, program: str | None = None) -> Shop:
    chance, shop, topic = random.Random(seed), Shop(seed), f"orders-{seed}"
    kafka.topic(topic, partitions=2)
    recipe = Recipe(KAFKA_TO_DELTA, folder, changes_for(kafka, topic), program)
    try:
        for _ in range(kills):
            kafka.send(topic, shop.wave(50))
            recipe.start()
            recipe.kill_soon(chance)
        kafka.send(topic, shop.wave(30))
        expected = shop.kept()
        found = recipe.finish(len(expected))
    finally:
        recipe.kill()
    assert recipe.kills == kills
    assert found == sorted(expected)
    print(f"\nseed {seed}: {kills} kills, {len(shop.sent)} messages, {len(found)} orders, each once")
    return shop


@pytest.mark.release
def test_killed_three_times(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    kill_again_and_again(kafka, tmp_path, kills=3, seed=seed)


@pytest.mark.torture
@pytest.mark.parametrize("shop", range(2))
def test_killed_twenty_times(kafka: Kafka, tmp_path: Path, seed: int, shop: int) -> None:
    """Each of two shops is killed ten times."""
    kill_again_and_again(kafka, tmp_path, kills=10, seed=seed + 1 + shop)


@pytest.mark.torture
def test_killed_between_two_tables(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    shop = kill_again_and_again(kafka, tmp_path, kills=4, seed=seed + 3, program=with_both_tables())
    assert rows_of(tmp_path / "data" / "repeated") == len(shop.sent) - len(shop.kept())


@pytest.mark.torture
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, "UnknownTopicOrPartitionException: This server does not host this topic-partition."),
        ({"timestamp AS at": "CAST(timestamp AS STRING) AS at"}, "The time column 'at' has type string; it must be a"),
    ],
)
def test_an_error_of_the_page(kafka: Kafka, tmp_path: Path, change: dict[str, str], error: str) -> None:
    assert error in page(KAFKA_TO_DELTA.name)
    recipe = Recipe(KAFKA_TO_DELTA, tmp_path, changes_for(kafka, "absent") | change)
    recipe.start()
    try:
        until(recipe.has_ended, "the program ends", limit=LIMIT)
    finally:
        recipe.kill()
    assert error in recipe.log.read_text()
