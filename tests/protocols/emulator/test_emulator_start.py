"""The gateway with the emulator's file and key, in the test's own process; no Spark."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oncebus.broker.clock import wall_time
from oncebus.engine.folders import Folders
from oncebus.model.access import EMULATOR_RULE, AuthorizationRule, make_token
from oncebus.model.entities import Catalogue, CatalogueFiles, Queue
from oncebus.programs.cli.client import Client, NotAnswered
from oncebus.programs.serve.gateway import run_gateway
from oncebus.protocols.management.problems import FileRefused
from oncebus.values.durations import HOUR, SECOND
from oncebus.values.settings import Settings, SettingsError, load

from .emulator_config import config_of, sample


def started(settings: Settings, play: Callable[[str], None] = lambda url: None) -> Catalogue:
    """Start a gateway, run a scenario with its address, stop it, and return its catalogue."""

    async def run() -> None:
        playing: list[asyncio.Task[None]] = []

        async def to_the_end(url: str) -> None:
            try:
                await asyncio.to_thread(play, url)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        def announce(event: str, url: str) -> None:
            if event == "open":
                playing.append(asyncio.create_task(to_the_end(url)))

        await run_gateway(settings, announce=announce)
        await asyncio.gather(*playing)

    asyncio.run(run())
    latest = CatalogueFiles(Folders(settings.data).catalogue).latest()
    assert latest is not None
    return latest


def settings_for(folder: Path, config: object, *, emulator: bool = True) -> Settings:
    path = folder / "Config.json"
    path.write_text(json.dumps(config))
    return Settings(data=folder / "data", http_port=0, amqp_port=0, config=path, emulator=emulator)


def signed(url: str, rule: AuthorizationRule = EMULATOR_RULE) -> Client:
    return Client(url, make_token(url, rule.name, rule.primary_key, wall_time() + HOUR))


def test_the_entities_of_the_file_exist_and_the_well_known_key_is_accepted(tmp_path: Path) -> None:
    def play(url: str) -> None:
        with signed(url) as client:
            client.ask("POST", "/orders/messages", b"hello")
            assert 'entity="prices/Subscriptions/by-own"' in client.ask("GET", "/metrics").body.decode()

    catalogue = started(settings_for(tmp_path, sample()), play)
    assert catalogue.queue("orders").window == 20 * SECOND
    assert len(catalogue.subscription("prices", "by-own").rules) == 2


def test_dns_rebinding_is_rejected(tmp_path: Path) -> None:
    statuses = {}

    def play(url: str) -> None:
        address = urlsplit(url).netloc
        token = make_token(url, EMULATOR_RULE.name, EMULATOR_RULE.primary_key, wall_time() + HOUR)
        for host in (address, "localhost", "evil.example:5300"):
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("GET", "/metrics", headers={"Host": host, "Authorization": token})
            statuses[host.partition(":")[0]] = connection.getresponse().status
            connection.close()
        for origin in ("http://localhost:3000", "http://203.0.113.5"):
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("GET", "/metrics", headers={"Origin": origin, "Authorization": token})
            statuses[origin] = connection.getresponse().status
            connection.close()

    started(settings_for(tmp_path, sample()), play)
    of_hosts = {"127.0.0.1": 200, "localhost": 200, "evil.example": 421}
    assert statuses == of_hosts | {"http://localhost:3000": 200, "http://203.0.113.5": 421}


def test_on_the_network_private_names_are_known_and_a_warning_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statuses = {}

    def play(url: str) -> None:
        port = urlsplit(url).port
        for host, path in (("emulator", "/metrics"), ("evil.example", "/metrics"), ("evil.example", "/health/live")):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            token = make_token(f"http://{host}/", EMULATOR_RULE.name, EMULATOR_RULE.primary_key, wall_time() + HOUR)
            connection.request("GET", path, headers={"Host": f"{host}:5300", "Authorization": token})
            statuses[host + path] = connection.getresponse().status
            connection.close()

    started(replace(settings_for(tmp_path, sample()), host="0.0.0.0", insecure_emulator=True), play)
    assert statuses == {"emulator/metrics": 200, "evil.example/metrics": 421, "evil.example/health/live": 200}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "The emulator's key is public: everyone who can reach 0.0.0.0 can read, send and delete messages" in warnings


def test_without_emulator_the_well_known_key_is_rejected(tmp_path: Path) -> None:
    refused = []

    def play(url: str) -> None:
        with signed(url) as client, pytest.raises(NotAnswered) as caught:
            client.ask("GET", "/metrics")
        refused.append(caught.value.status)

    started(settings_for(tmp_path, sample(), emulator=False), play)
    assert refused == [401]


def test_a_restart_creates_only_missing_entities(tmp_path: Path) -> None:
    first = started(settings_for(tmp_path, config_of(Queues=[{"Name": "a"}])))
    changed = config_of(Queues=[{"Name": "a", "Properties": {"MaxDeliveryCount": 9}}, {"Name": "b"}])
    second = started(settings_for(tmp_path, changed))
    assert second.queue("a") == first.queue("a")
    assert second.queue("b").max_delivery_count == 3
    assert started(settings_for(tmp_path, changed)).version == second.version


def test_a_value_that_is_changed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    properties = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5S"}
    started(settings_for(tmp_path, config_of(Queues=[{"Name": "a", "Properties": properties}])))
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith(
        f"Configuration file '{tmp_path}/Config.json': UserConfig.Namespaces[0].Queues[0].Properties."
    )
    assert "PT5S is raised to PT20S" in said


def test_a_bad_file_prevents_the_start_and_creates_nothing(tmp_path: Path) -> None:
    config = config_of(Queues=[{"Name": "good"}, {"Name": "bad", "Properties": {"ForwardTo": "nowhere"}}])
    with pytest.raises(FileRefused, match=r"Queues\[1\].Properties.ForwardTo: .*'nowhere' does not exist"):
        started(settings_for(tmp_path, config))
    latest = CatalogueFiles(Folders(tmp_path / "data").catalogue).latest()
    assert latest is not None
    assert latest.find("good") is None


def test_the_entities_file_and_the_emulators_go_together(tmp_path: Path) -> None:
    """The configuration comes first, so that the entities file may refer to its entities."""
    entities = tmp_path / "entities.json"
    entities.write_text(json.dumps([{"name": "b", "forwardTo": "a"}]))
    settings = settings_for(tmp_path, config_of(Queues=[{"Name": "a"}]))

    async def run() -> None:
        def announce(event: str, _: str) -> None:
            if event == "open":
                os.kill(os.getpid(), signal.SIGTERM)

        await run_gateway(settings, entities=entities, announce=announce)

    asyncio.run(run())
    latest = CatalogueFiles(Folders(settings.data).catalogue).latest()
    assert latest is not None
    assert isinstance(latest.find("b"), Queue)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_with_the_well_known_key_the_gateway_listens_on_loopback(host: str) -> None:
    assert load({"emulator": True, "host": host}, {}, None).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "bus.example.org", "localhost.example.org"])
def test_with_the_well_known_key_other_addresses_are_rejected(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"emulator": True}, {"ONCEBUS_HOST": host}, None)
    assert str(caught.value) == (
        f"Setting 'host' from the environment variable ONCEBUS_HOST has value '{host}'. With 'emulator' it must be"
        " this machine: 127.0.0.1, ::1 or localhost. 'insecure_emulator' allows it, and opens the broker to everyone"
        " who can reach it."
    )
    assert load({"emulator": True, "insecure_emulator": True, "host": host}, {}, None).host == host
    assert load({"host": host}, {}, None).host == host


def test_the_emulators_ports_are_the_usual_ones() -> None:
    settings = load({"emulator": True}, {}, None)
    assert (settings.amqp_port, settings.http_port) == (5672, 5300)
