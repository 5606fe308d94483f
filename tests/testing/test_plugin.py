"""The plugin in runs of pytest of their own, as in a user's project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INI = """
[pytest]
oncebus_entities = entities.json
"""
ENTITIES = '[{"name": "orders", "requiresDuplicateDetection": true}]'
TESTS = """
import asyncio

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient


# Each fails if it sees what another has left behind.
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_an_order_is_delivered_once(oncebus, turn):
    with ServiceBusClient.from_connection_string(oncebus.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id="order-1")] * 2)
        with client.get_queue_receiver("orders") as receiver:
            assert len(receiver.receive_messages(10, max_wait_time=5)) == 1
    assert oncebus.duplicates("orders") == ["order-1"]


async def send(string):
    async with AsyncClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="order-1"))


def test_with_asyncio(oncebus, oncebus_broker):
    assert oncebus is oncebus_broker
    asyncio.run(send(oncebus.connection_string))
    assert oncebus.duplicates("orders") == []
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "entities.json").write_text(ENTITIES)
    (tmp_path / "test_orders.py").write_text(TESTS)
    return tmp_path


def run_pytest(project: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=project, env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_test_has_the_broker_as_it_was_at_the_start(project: Path) -> None:
    assert "4 passed" in run_pytest(project)


def test_processes_of_xdist_have_a_broker_each(project: Path) -> None:
    assert "4 passed" in run_pytest(project, "-n", "2")


def test_whoever_uses_no_fixture_does_not_wait_for_the_broker(project: Path) -> None:
    (project / "test_orders.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    assert not {'oncebus.testing.broker', 'oncebus.broker.broker', 'pyarrow'} & set(sys.modules)\n"
    )
    assert "1 passed" in run_pytest(project)


@pytest.mark.release
def test_with_spark_the_same_tests_pass(project: Path) -> None:
    (project / "pytest.ini").write_text(INI + "oncebus_spark = true\n")
    assert "4 passed" in run_pytest(project)
