"""`oncebus serve` as a person runs it, Spark and all. A start takes many seconds, so one history tells everything."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .clients import Client, Running, everything_below
from .programs import is_alive, until

# How long a message may take while a Spark that was killed is started again, on a busy machine.
PATIENCE = 60.0


@contextmanager
def service(folder: Path, name: str) -> Iterator[Running]:
    places: list[str | Path] = ["--data", folder / "data", "--entities", folder / "entities.json"]
    words = ["serve", "--http-port", "0", "--amqp-port", "0", "--master", "local[1]", *places]
    running = Running(folder, name, words)
    try:
        yield running
    finally:
        below = everything_below(running.process.pid) if running.process.poll() is None else []
        running.clean_up()
        until(lambda: not any(map(is_alive, below)), "what was started ends too")


def test_messages_are_delivered_once_whatever_is_killed_or_started_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    queue = {"type": "queue", "name": "orders", "requiresDuplicateDetection": True}
    (tmp_path / "entities.json").write_text(json.dumps([queue]))

    with service(tmp_path, "first") as running:
        client = Client(running.ready(), data)
        assert client.health() == 200
        assert "SharedAccessKeyName=RootManageSharedAccessKey;" in running.out.read_text().splitlines()[0]
        assert (client.send("orders", "a", "1"), client.send("orders", "a", "2")) == (201, 201)
        assert client.receive("orders", PATIENCE) == ("a", "1")
        assert [drop["messageId"] for drop in client.drops("orders")] == ["a"]

        # Both parts die; the address stays, what was accepted is there, and the id is remembered.
        gateway, pipeline = running.child("gateway"), running.child("pipeline")
        below = everything_below(pipeline)
        os.kill(pipeline, signal.SIGKILL)
        assert (client.send("orders", "a", "3"), client.send("orders", "b", "4")) == (201, 201)
        os.kill(gateway, signal.SIGKILL)
        assert (client.send("orders", "b", "5"), client.send("orders", "c", "6")) == (201, 201)
        assert client.receive("orders", PATIENCE) == ("b", "4")
        assert client.receive("orders", PATIENCE) == ("c", "6")
        assert [drop["messageId"] for drop in client.drops("orders")] == ["a", "a", "b"]
        assert not any(map(is_alive, below))
        assert running.child("gateway") != gateway

        # Nobody but the log of Spark is told what Spark has to say.
        assert "WARN" not in running.err.read_text()
        assert (data / "spark.log").stat().st_size > 0
        below = everything_below(running.process.pid)
        assert len(below) > 3
        assert running.stop() == 0
        assert not any(map(is_alive, below))

    with service(tmp_path, "second") as running:
        client = Client(running.ready(), data)
        assert (client.send("orders", "c", "7"), client.send("orders", "d", "8")) == (201, 201)
        assert client.receive("orders", PATIENCE) == ("d", "8")
        assert [drop["messageId"] for drop in client.drops("orders")] == ["a", "a", "b", "c"]
        below = everything_below(running.process.pid)
        running.process.kill()
        running.process.wait()
        until(lambda: not any(map(is_alive, below)), "all end when the supervisor is killed")
