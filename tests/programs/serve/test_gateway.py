"""Tests the gateway as a process, with a pipeline in the test's own process instead of Spark."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from oncebus.broker.clock import wall_time
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxInUse
from oncebus.model.access import KeyFile
from oncebus.model.entities import Tier, Topic
from oncebus.pipeline.driver import LocalDriver
from oncebus.programs.cli import main
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.programs.serve.gateway import _bring_up_to_date, run_gateway
from oncebus.values.errors import OncebusError
from oncebus.values.settings import Settings
from tests.broker.in_process import SHARDS, running_broker

from .clients import ENVIRONMENT, Client, Running
from .programs import is_alive, until
from .wrong_clock import WrongClock

ENTITIES = [{"type": "queue", "name": "orders", "requiresDuplicateDetection": True}]
PATIENCE = 60.0
"""How long receiving a message may take on a busy machine."""


def arguments(folder: Path, *more: str) -> list[str | Path]:
    (folder / "entities.json").write_text(json.dumps(ENTITIES))
    data, entities = folder / "data", folder / "entities.json"
    return ["gateway", "--data", data, "--http-port", "0", "--amqp-port", "0", "--entities", entities, *more]


@contextmanager
def pipeline(data: Path) -> Iterator[None]:
    """Run a pipeline over the gateway's data folder for a block."""
    ended = threading.Event()
    # The real pipeline does this too: either process may create the folder, and it must be private from the start.
    Folders(data).make()
    judging = LocalDriver(Folders(data), shards=SHARDS)

    def run() -> None:
        while not ended.is_set():
            if not judging.step():
                ended.wait(0.005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def gateway(folder: Path, *more: str, name: str = "gateway", within: Sequence[str] = ()) -> Iterator[Running]:
    running = Running(folder, name, arguments(folder, *more), within=within)
    try:
        yield running
    finally:
        running.clean_up()


def address(data: Path) -> str:
    until((data / "address").exists, "the gateway listens")
    return (data / "address").read_text().strip()


def test_it_is_ready_once_a_row_has_come_out_of_the_pipeline_and_unhealthy_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path) as running:
        client = Client(address(data), data)
        assert client.health() == 503
        assert client.send("orders", "a", "sent before there was a pipeline") == 201
        opened = f"Oncebus accepts messages: {client.url} (Spark is starting; deliveries begin after that)\n"
        until(lambda: running.out.read_text() == opened, "it says that it accepts messages, and nothing more")
        for words, answer in (
            (["receive", "orders", "--wait", "0"], "No message arrived from 'orders'."),
            (["peek", "orders"], "There are no messages in 'orders'."),
            (["duplicates", "orders"], "No duplicates were dropped at 'orders'."),
        ):
            said = CliRunner().invoke(main, [*words, "--data", str(data)]).output
            assert said.startswith(f"{answer} But the pipeline is not ready (it may still be starting)")
            assert re.search(r": The pipeline has produced no output for \d+ seconds\.\n$", said)
        with pipeline(data):
            assert running.ready() == client.url
            assert client.health() == 200
            assert client.receive("orders", PATIENCE) == ("a", "sent before there was a pipeline")
        assert running.stop() == 0
        assert not (data / "address").exists()


def test_the_command_shows_the_dropped_messages(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path) as running, pipeline(data):
        client = Client(running.ready(), data)
        odd = "a/b ö [red]\x1b[2J"
        for body in ("first", "second", "third"):
            assert client.send("orders", odd, body) == 201
        assert client.send("orders", "other", "x") == 201
        assert client.receive("orders", PATIENCE) == (odd, "first")
        assert client.receive("orders", PATIENCE) == ("other", "x")
        shown = CliRunner().invoke(main, ["duplicates", "orders", "--json", "--data", str(data)])
        assert shown.exit_code == 0, shown.output
        drops = [json.loads(line) for line in shown.output.splitlines()]
        assert [(drop["messageId"], drop["sequenceNumber"]) for drop in drops] == [(odd, 3), (odd, 2)]
        assert [drop["original"]["sequenceNumber"] for drop in drops] == [1, 1]

        by_id = ["duplicates", "orders", "--data", str(data), "--message-id"]
        table = CliRunner().invoke(main, [*by_id, odd])
        assert "a/b ö [red]\\x1b[2J" in table.output
        assert "\x1b" not in table.output
        none = CliRunner().invoke(main, [*by_id, "other"]).output
        assert none == "No duplicate of 'other' was dropped at 'orders'.\n"
        late = ["--since", "2999-01-01T00:00:00Z"]
        none = CliRunner().invoke(main, [*by_id, odd, *late]).output
        assert none == f"No duplicate of 'a/b ö [red]\\x1b[2J' was dropped at 'orders' since {late[1]}.\n"

        unknown = CliRunner().invoke(main, ["duplicates", "nowhere", "--data", str(data)])
        assert unknown.exit_code == 1
        assert "answers 404" in unknown.output
        when = CliRunner().invoke(main, ["duplicates", "orders", "--since", "soon", "--data", str(data)])
        assert "Not a time" in when.output
        assert when.output.count("\n") == 1


def test_a_token_of_the_command_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path):
        client = Client(address(data), data)
        made = CliRunner().invoke(main, ["token", "--entity", "orders", "--data", str(data)]).output.strip()
        request = ("GET", "/orders/$duplicates")
        assert client.request(*request, headers={"Authorization": made}, signed=False)[0] == 200
        assert client.request("GET", "/metrics", headers={"Authorization": made}, signed=False)[0] == 401
        assert client.request(*request, signed=False)[0] == 401


def test_after_a_kill_and_a_restart_it_has_the_messages_that_it_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path) as running:
        client = Client(address(data), data)
        assert client.send("orders", "a", "1") == 201
        running.process.kill()
        running.process.wait()
    (data / "address").unlink()
    with gateway(tmp_path, name="again") as running, pipeline(data):
        client = Client(running.ready(), data)
        assert client.send("orders", "a", "2") == 201
        assert client.receive("orders", PATIENCE) == ("a", "1")
        assert client.receive("orders", 0.1) is None
        # A read waits at most two seconds for earlier sends, which may be too short on a busy machine.
        until(lambda: [drop["messageId"] for drop in client.drops("orders")] == ["a"], "the drop")


def taken(client: Client) -> tuple[str, int, datetime]:
    """Receive the next message. Return its id, its sequence number and its enqueued time."""
    found = client.receive_whole("orders", PATIENCE)
    assert found is not None
    properties = found[0]
    enqueued = parsedate_to_datetime(properties["EnqueuedTimeUtc"])
    return properties["MessageId"], properties["SequenceNumber"], enqueued


def test_enqueued_times_stay_right_when_the_machines_clock_is_set_back_or_far_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is wrong for the gateway, the pipeline and the client, as on a real machine."""
    data, hour = tmp_path / "data", 3600
    clock = WrongClock(tmp_path / "wrong")
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    monkeypatch.setattr(time, "time", clock.time)
    with pipeline(data):
        with gateway(tmp_path, within=clock.within) as running:
            client = Client(running.ready(), data)
            assert client.send("orders", "a", "1") == 201
            found = [taken(client)]

            clock.set_wrong(-hour)
            assert client.send("orders", "a", "2") == 201
            assert client.send("orders", "b", "3") == 201
            assert client.send_with("orders", "4", MessageId="lives", TimeToLive=hour) == 201
            found.append(taken(client))
            [drop] = client.drops("orders")
            assert (drop["messageId"], drop["sequenceNumber"], drop["original"]["sequenceNumber"]) == ("a", 2, 1)
            assert drop["time"] >= drop["original"]["time"]
            until(lambda: "whose time all new messages get" in running.err.read_text(), "it logs the problem")

            clock.set_wrong(24 * hour)
            refused = client.request("POST", "/orders/messages", "5", {"BrokerProperties": '{"MessageId": "c"}'})
            assert (refused[0], refused[1]["retry-after"]) == (503, "10")
            assert "The clock leapt " in refused[2]
            assert "Messages are refused until it is corrected" in refused[2]
            until(lambda: client.health() == 503, "it is unhealthy")
            assert "The clock leapt " in running.err.read_text()
            # Neither the messages nor the client's token have expired.
            found.append(taken(client))

            clock.set_wrong(0)
            assert client.send("orders", "c", "6") == 201
            found.append(taken(client))
            until(lambda: client.health() == 200, "it is healthy again")
            running.process.kill()
            running.process.wait()

        clock.set_wrong(-hour // 8)
        with gateway(tmp_path, name="again", within=clock.within) as running:
            client = Client(running.ready(), data)
            assert client.send("orders", "a", "7") == 201
            assert client.send("orders", "d", "8") == 201
            found.append(taken(client))
            assert [drop["sequenceNumber"] for drop in client.drops("orders")] == [2, 6]

    assert [each[:2] for each in found] == [("a", 1), ("b", 3), ("lives", 4), ("c", 5), ("d", 7)]
    times = [each[2] for each in found]
    assert times == sorted(times)
    assert times[-1] <= datetime.now(UTC)


def test_after_a_start_with_a_clock_far_ahead_it_needs_that_clock_to_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    clock = WrongClock(tmp_path / "wrong")
    clock.set_wrong(365 * 86_400)
    with gateway(tmp_path, within=clock.within) as running, pipeline(data):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time_ns", clock.time_ns)
            client = Client(running.ready(), data)
        assert client.send("orders", "a", "1") == 201
        assert client.send("orders", "b", "2") == 201
        assert client.receive("orders", PATIENCE) == ("a", "1")
        until(lambda: client.metric("messages_new_total", entity="orders") == 2, "both are there")
        assert running.stop() == 0
    clock.set_wrong(0)

    with gateway(tmp_path, name="refused", within=clock.within) as running:
        assert running.process.wait(60) == 1
        [line] = running.err.read_text().splitlines()
        assert line.startswith(f"oncebus: The newest message in store '{data}/store.db' was sent at ")
        assert "If it was wrong then, data folder" in line

    clock.set_wrong(365 * 86_400)
    with gateway(tmp_path, name="again", within=clock.within) as running, pipeline(data):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time_ns", clock.time_ns)
            client = Client(running.ready(), data)
        assert client.send("orders", "a", "3") == 201
        assert taken(client)[:2] == ("b", 2)
        assert [drop["messageId"] for drop in client.drops("orders")] == ["a"]


def test_it_ends_when_the_process_that_started_it_ends(tmp_path: Path) -> None:
    """The starter is killed, so it cannot send a signal."""
    words = [sys.executable, "-m", "oncebus.programs.cli", *map(str, arguments(tmp_path))]
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({words!r} + ['--parent', str(os.getpid())])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert starter.stdout is not None
    with starter.stdout:
        pid = int(starter.stdout.readline())
        try:
            address(tmp_path / "data")
        finally:
            starter.kill()
            starter.wait()
    until(lambda: not is_alive(pid), "the gateway ends")
    assert not (tmp_path / "data" / "address").exists()


def test_it_leaves_no_address_if_nobody_can_be_told(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "oncebus.programs.cli", *map(str, arguments(tmp_path))]
    with os.fdopen(writing, "w") as out:
        done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode != 0
    assert (tmp_path / "data" / "inbox").exists()
    assert not (tmp_path / "data" / "address").exists()


def test_a_second_gateway_over_the_same_data_folder_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_broker(tmp_path, pipeline=False):
            await run_gateway(Settings(data=tmp_path, http_port=0, amqp_port=0))

    with pytest.raises(InboxInUse, match="is being written by another process"):
        asyncio.run(run())


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = CliRunner().invoke(main, ["gateway", "--data", str(tmp_path), "--http-port", str(port)])
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"oncebus: Cannot listen at 127.0.0.1, port {port}: the port is in use. "
        "Stop the program that uses it, or choose another port with --http-port.\n"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (Settings(shards=3), "shards"),
        (Settings(namespace="two"), "belongs to the namespace 'oncebus'. Change the setting"),
        (Settings(tier="Basic"), "Basic"),
    ],
)
def test_settings_that_contradict_the_existing_data_are_refused(tmp_path: Path, changed: Settings, said: str) -> None:
    async def run() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            await broker.change(lambda catalogue, now: catalogue.create(Topic(name="t"), now))
        await run_gateway(replace(changed, data=tmp_path, http_port=0, amqp_port=0))

    with pytest.raises(OncebusError, match=said):
        asyncio.run(run())


def test_a_tier_that_was_changed_meanwhile_stays_unless_a_tier_is_given(tmp_path: Path) -> None:
    tiers = []

    async def run(settings: Settings) -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            await broker.change(lambda catalogue, now: catalogue.change_tier(Tier.PREMIUM))
            await _bring_up_to_date(broker, settings, [])
            tiers.append(broker.catalogue.namespace.tier)

    for settings in (Settings(), Settings(tier="Basic")):
        asyncio.run(run(settings))
    assert tiers == [Tier.PREMIUM, Tier.BASIC]


def amqp_port(running: Running) -> int:
    """Return the AMQP port from its log."""

    def ports() -> list[int]:
        lines = running.err.read_text().splitlines(keepends=True)
        facts = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each["amqp_port"] for each in facts if "amqp_port" in each]

    until(ports, f"it listens, {running.err.read_text()}")
    return ports()[0]


@pytest.mark.parametrize("certificate", ["none", "given", "its own"])
def test_it_uses_tls_for_amqp_if_it_has_a_certificate(tmp_path: Path, certificate: str) -> None:
    data = tmp_path / "data"
    words, domain, scheme, trusted = ["--log-format", "json"], None, "amqp", data / CERTIFICATE
    is_encrypted = certificate != "none"
    if certificate == "given":
        tls = own_certificate(tmp_path, "localhost", wall_time())
        words += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
        trusted = tmp_path / CERTIFICATE
    if certificate == "its own":
        words += ["--tls"]
    if is_encrypted:
        words += ["--amqps-port", "0"]
    with gateway(tmp_path, *words) as running:
        port = amqp_port(running)
        assert address(data).startswith("https:" if is_encrypted else "http:")
        if is_encrypted:
            domain, scheme = SSLDomain(SSLDomain.MODE_CLIENT), "amqps"
            domain.set_trusted_ca_db(str(trusted))
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        rule = KeyFile(data / "keys.json").rules()[0]
        connection = BlockingConnection(
            f"{scheme}://localhost:{port}",
            timeout=PATIENCE,
            ssl_domain=domain,
            user=rule.name,
            password=rule.primary_key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        connection.create_sender("orders").send(Message(body="x", id="a"))
        if not is_encrypted:
            metrics = Client(address(data), data).request("GET", "/metrics")[2]
            assert "oncebus_amqp_connections 1.0\n" in metrics
            assert "oncebus_amqp_senders 1.0\n" in metrics
        connection.close()
        assert running.stop() == 0


def test_only_the_owner_can_read_the_keys_and_no_log_has_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path, "--log-level", "debug") as running:
        client = Client(address(data), data)
        client.send("orders", "a", "x")
        client.request("GET", "/orders/$duplicates", headers={"Authorization": "SharedAccessSignature sig=secret"})
        running.stop()
    key = json.loads((data / "keys.json").read_text())["rules"][0]["primary"]
    assert os.stat(data / "keys.json").st_mode & 0o777 == 0o600
    assert key not in running.err.read_text() + running.out.read_text()
