"""Tests `oncebus serve` while its pipeline cannot run: the test holds the pipeline's lock, so Spark never starts."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from .clients import ENVIRONMENT, Client, Running, everything_below
from .programs import is_alive, until


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (tmp_path / "entities.json").write_text(json.dumps([{"type": "queue", "name": "orders"}]))
    with (folder / "pipeline.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def words(data: Path) -> list[str | Path]:
    ports: list[str | Path] = ["serve", "--http-port", "0", "--amqp-port", "0", "--log-format", "json"]
    return [*ports, "--data", data, "--entities", data.parent / "entities.json"]


def logged(running: Running) -> list[str]:
    lines = running.err.read_text().splitlines(keepends=True)
    return [json.loads(line)["message"] for line in lines if line.endswith("\n")]


def test_it_restarts_the_pipeline_again_and_again_and_accepts_messages_meanwhile(tmp_path: Path, data: Path) -> None:
    running = Running(tmp_path, "serve", words(data))
    try:
        until((data / "address").exists, "the gateway listens")
        client = Client((data / "address").read_text().strip(), data)
        assert client.send("orders", "a", "1") == 201
        reason = f"The pipeline failed: Another pipeline uses data folder '{data}'. Stop it first."
        until(lambda: logged(running).count(reason) >= 2, "two attempts")
        assert client.health() == 503
        assert client.request("GET", "/health/live", signed=False)[0] == 200
        assert client.request("GET", "/health/ready", signed=False)[0] == 503
        said = [json.loads(line)["message"] for line in running.out.read_text().splitlines()]
        assert said[1:] == [f"Oncebus accepts messages: {client.url} (Spark is starting; deliveries begin after that)"]

        gateway = running.child("gateway")
        os.kill(gateway, signal.SIGKILL)
        assert client.send("orders", "b", "2") == 201
        assert running.child("gateway") != gateway

        second = subprocess.run(
            [sys.executable, "-m", "oncebus.programs.cli", *map(str, words(data))],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 1
        reason = f"Another broker uses data folder '{data}'. Stop it first, or choose another folder with --data."
        assert second.stdout == ""
        assert json.loads(second.stderr)["message"] == f"oncebus: {reason}"
        assert client.send("orders", "c", "3") == 201

        below = everything_below(running.process.pid)
        assert running.stop(signal.SIGINT) == 0
        until(lambda: not any(map(is_alive, below)), "nothing runs")
    finally:
        running.clean_up()


def test_the_official_client_accepts_the_printed_connection_string(tmp_path: Path, data: Path) -> None:
    running = Running(tmp_path, "serve", [*words(data), "--print-connection-string"])
    try:
        until(lambda: "\n" in running.out.read_text(), "the connection string")
        text = json.loads(running.out.read_text().splitlines()[0])["message"]
        assert text.startswith("Endpoint=sb://localhost:")
        assert text.endswith(";UseDevelopmentEmulator=true")
        with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(b"x", message_id="a"))
        assert running.stop() == 0
    finally:
        running.clean_up()
