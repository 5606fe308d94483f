"""Kafka to Delta through Spark Connect: server and client are killed, and the table has every order once."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import maven
from tests.cluster import free_port
from tests.programs.serve.programs import until

from .kafka import Kafka
from .orders import Shop
from .pages import END, SPARK_CONNECT
from .recipe import LIMIT, Recipe, kill
from .test_kafka_to_delta import changes_for

WHY_NOT = maven.missing("Recipes")

pytestmark = [pytest.mark.torture, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


class Connected(Recipe):
    """The program is a client. `driver` is the server, which has the query."""

    client: subprocess.Popen[bytes] | None = None

    def __init__(self, folder: Path, changes: dict[str, str]) -> None:
        self._port = free_port()
        super().__init__(SPARK_CONNECT, folder, {**changes, "localhost:15002": f"127.0.0.1:{self._port}"})

    def command(self) -> list[str]:
        """Return the command of the server, at a free port."""
        *words, last = super().command()
        options = {"binding.address": "127.0.0.1", "binding.port": self._port}
        return [*words, *(f"--conf=spark.connect.grpc.{name}={value}" for name, value in options.items()), last]

    def start(self, end: str = END) -> None:
        """Start the server, unless it runs, and then the client."""
        kill(self.client)
        if self.driver is None or self.driver.poll() is not None:
            self.driver = self._run(self.command())
            until(self._listens, "the server starts", limit=LIMIT)
        (self.folder / "client.py").write_text(self.text(end))
        self.client = self._run([sys.executable, "client.py"])

    @property
    def running(self) -> subprocess.Popen[bytes] | None:
        """Return the client."""
        return self.client

    def kill(self) -> None:
        """Kill the server. The client cannot continue."""
        super().kill()
        kill(self.client)

    def _listens(self) -> bool:
        assert self.driver is not None
        assert self.driver.poll() is None, self.errors()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@pytest.mark.parametrize("kills", [["server"], ["client", "server", "client", "server", "server"]])
def test_killed(kafka: Kafka, tmp_path: Path, seed: int, kills: list[str]) -> None:
    chance, shop, topic = random.Random(seed), Shop(seed), f"connected-{seed}-{len(kills)}"
    kafka.topic(topic, partitions=2)
    recipe = Connected(tmp_path, changes_for(kafka, topic))
    try:
        for which in kills:
            # A query whose client was killed may still run, and process these orders before the next client starts.
            before = recipe.progress()
            kafka.send(topic, shop.wave(80))
            recipe.start()
            recipe.wait_until_it_works(chance, before)
            if which == "server":
                recipe.kill()
            else:
                kill(recipe.client)
        kafka.send(topic, shop.wave(40))
        expected = shop.kept()
        found = recipe.finish(len(expected))
    finally:
        recipe.kill()
    assert found == sorted(expected)
    print(f"\nseed {seed}: {kills}, {len(shop.sent)} messages, {len(found)} orders, each once")
