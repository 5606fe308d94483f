"""Builds the image without Docker, and uses it in place of the official emulator's, with the official client.

Building takes minutes, so `make test-all` and `make test-image` run this, and `make test` does not.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from oncebus.programs.serve.service import EMULATOR_READY
from oncebus.protocols.emulator.container import CONFIG
from tests.cluster import free_port

from .containers import build, image_config, missing, running

pytestmark = [pytest.mark.release, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

IMAGE = "oncebus-test"
USER = 10001
SETTINGS = """// As users write it
{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders", "Properties": {
        "RequiresDuplicateDetection": true, "DuplicateDetectionHistoryTimeWindow": "PT5M",
    }},
]}], "Logging": {"Type": "File"}}}
"""


@pytest.fixture(scope="module")
def image() -> str:
    build(IMAGE)
    return IMAGE


def health(port: int) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_image_keeps_the_contract(image: str) -> None:
    config = image_config(image)
    assert config["User"] == f"{USER}:{USER}"
    assert set(config["ExposedPorts"]) == {"5672/tcp", "5300/tcp"}
    assert set(config["Volumes"]) == {"/var/lib/oncebus"}
    assert config["Healthcheck"]["Test"] == ["CMD", "/opt/oncebus/bin/oncebus-health"]


def test_the_image_takes_the_place_of_the_emulators(image: str, tmp_path: Path) -> None:
    volume, config = tmp_path / "volume", tmp_path / "Config.json"
    volume.mkdir()
    os.chown(volume, USER, USER)
    config.write_text(SETTINGS)
    mounts = {volume: "/var/lib/oncebus", config: str(CONFIG)}
    amqp, http = free_port(), free_port()
    environment = {
        "ACCEPT_EULA": "Y",
        "SQL_SERVER": "sqledge",
        "MSSQL_SA_PASSWORD": "not-shown",
        "EMULATOR_HTTP_PORT": str(http),
        "ONCEBUS_AMQP_PORT": str(amqp),
    }
    connection = (
        f"Endpoint=sb://localhost:{amqp};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    )
    with running(image, tmp_path / "first.log", mounts, environment) as container:
        container.wait_for(EMULATOR_READY)
        assert health(http) == (200, {"status": "healthy", "message": "Service is healthy."})
        assert container.processes()
        users = {Path(f"/proc/{pid}").stat().st_uid for pid in container.processes()}
        assert users == {USER}
        with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender("orders") as sender:
            for text in ("one", "again", "two"):
                sender.send_messages(ServiceBusMessage(text, message_id="2" if text == "two" else "1"))
            with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
                first = next(receiver)
                receiver.complete_message(first)
        assert str(first) == "one"
        said = container.log.read_text()
        assert "SQL_SERVER, MSSQL_SA_PASSWORD have no effect" in said
        assert "not-shown" not in said
    with running(image, tmp_path / "second.log", mounts, environment) as container:
        container.wait_for(EMULATOR_READY)
        with ServiceBusClient.from_connection_string(connection) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("again", message_id="1"))
                sender.send_messages(ServiceBusMessage("three", message_id="3"))
            found: list[str] = []
            with client.get_queue_receiver("orders", max_wait_time=60) as receiver:
                while len(found) < 2:
                    message = next(receiver)
                    found.append(str(message))
                    receiver.complete_message(message)
                assert receiver.receive_messages(max_wait_time=2) == []
        assert found == ["two", "three"]


def test_a_mistake_in_a_variable_is_one_line(image: str, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="the container ended"),
        running(image, tmp_path / "log", {}, {"ACCEPT_EULA": "N"}) as container,
    ):
        container.wait_for(EMULATOR_READY)
    assert "oncebus: Environment variable ACCEPT_EULA has value 'N'." in (tmp_path / "log").read_text()
