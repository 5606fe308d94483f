"""Service Bus to Delta: the program of the page is killed and started again, and the table has every order once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests import maven
from tests.connector.bus import QUICK, running_bus

from .orders import Shop
from .pages import SERVICE_BUS_TO_DELTA
from .recipe import Recipe

WHY_NOT = maven.missing("Recipes")

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or ""),
    # azure-servicebus does not close the sockets of lost connections.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("kills", [1, 6])
def test_killed(tmp_path: Path, seed: int, kills: int) -> None:
    chance, shop = random.Random(seed), Shop(seed)
    (tmp_path / "bus").mkdir()
    with running_bus(tmp_path / "bus") as bus:
        bus.queue("orders", **QUICK)
        (tmp_path / "string").write_text(bus.string)
        spool = '"/data/spool")'
        few = f'{spool}.option("max_rows", 30)'
        recipe = Recipe(
            SERVICE_BUS_TO_DELTA, tmp_path, {"/etc/oncebus/servicebus": str(tmp_path / "string"), spool: few}
        )

        def send(size: int) -> None:
            bus.send("orders", [ServiceBusMessage(each.body, message_id=each.id) for each in shop.wave(size)])

        try:
            for _ in range(kills):
                send(90)
                recipe.start()
                recipe.kill_soon(chance)
            send(60)
            expected = shop.kept()
            found = recipe.finish(len(expected))
        finally:
            recipe.kill()
    assert recipe.kills == kills
    # The broker sets the times, and a copy that comes again after its lock has expired may have lost its place.
    assert [(each.id, each.body) for each in found] == sorted((each.id, each.body) for each in expected)
    print(f"\nseed {seed}: {kills} kills, {len(shop.sent)} messages, {len(found)} orders, each once")
