"""The files in deploy/monitoring: real metrics, Prometheus' own checks, and a Prometheus that reads a broker."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from oncebus.model.access import make_token
from oncebus.testing import run_broker
from oncebus.testing.broker import Broker

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
PATIENCE = 90.0


@pytest.fixture(scope="module")
def used_broker() -> Iterator[Broker]:
    """A broker that has delivered, dropped and refused messages, so that it has all its metrics."""
    with run_broker([{"name": "orders", "requiresDuplicateDetection": True}]) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage("x", message_id="1")] * 2)
            with client.get_queue_receiver("orders") as receiver:
                receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=30)[0])
        assert httpx.post(f"{broker.url}/orders/messages").status_code == 401
        yield broker


def signature(broker: Broker) -> str:
    parts = dict(part.partition("=")[::2] for part in broker.connection_string.split(";"))
    return make_token("sb://localhost/", parts["SharedAccessKeyName"], parts["SharedAccessKey"], 1 << 60)


def expressions() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    return [target["expr"] for panel in panels for target in panel["targets"]] + [rule["expr"] for rule in rules]


def test_every_metric_that_they_name_exists(used_broker: Broker) -> None:
    answer = httpx.get(f"{used_broker.url}/metrics", headers={"authorization": signature(used_broker)})
    there = set(re.findall(r"^(oncebus_\w+)", answer.text, re.MULTILINE))
    named = {name for each in expressions() for name in re.findall(r"oncebus_\w+", each)}
    assert len(named) >= 20
    assert named - there == set()


def test_the_dashboard_has_what_grafana_needs_to_import_it() -> None:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert (len(ids), board["uid"], board["title"]) == (len(set(ids)), "oncebus", "Oncebus")
    variables = {each["name"] for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
    assert used <= variables | {"__rate_interval", "__range"}
    taken: dict[tuple[int, int], int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["id"]) == panel["id"]


@pytest.mark.release
@pytest.mark.parametrize(
    "words",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_accepts_the_files(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_each_query_of_the_board_has_data_in_a_prometheus(used_broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "signature").write_text(signature(used_broker).removeprefix("SharedAccessSignature "))
    scrape = {
        "job_name": "oncebus",
        "authorization": {"type": "SharedAccessSignature", "credentials_file": str(tmp_path / "signature")},
        "static_configs": [{"targets": [used_broker.url.removeprefix("http://")]}],
    }
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    words = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*words, "--storage.tsdb.path=data"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        waiting = set(expressions()[: -len(alerts())])
        deadline = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < deadline:
            waiting = {each for each in waiting if not has_data(port, each)}
            time.sleep(0.5)
    finally:
        running.terminate()
        running.wait(PATIENCE)
    assert waiting == set(), (tmp_path / "log").read_text()[-2000:]


def alerts() -> list[Any]:
    found: list[Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    return found


def has_data(port: int, expression: str) -> bool:
    for name, value in (("$instance", ".*"), ("$entity", ".*"), ("$__rate_interval", "1m"), ("$__range", "1m")):
        expression = expression.replace(name, value)
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": expression}).json()
    except httpx.TransportError:
        return False
    assert answer["status"] == "success", answer
    return bool(answer["data"]["result"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
