"""The gateway as a process of its own, with the pipeline in the test's: no Spark."""

from __future__ import annotations

import asyncio
import json
import os
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

from broker.in_process import InProcessPipeline, running_broker
from oncebus.access import KeyFile
from oncebus.broker.clock import wall_time
from oncebus.cli import main
from oncebus.entities import Tier, Topic
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.inbox import InboxInUse
from oncebus.serve.certificate import CERTIFICATE, own_certificate
from oncebus.serve.gateway import _bring_up_to_date, run_gateway
from oncebus.settings import Settings

from .clients import ENVIRONMENT, Client, Running
from .programs import is_alive, until
from .wrong_clock import WrongClock

ENTITIES = [{"type": "queue", "name": "orders", "requiresDuplicateDetection": True}]
PATIENCE = 30.0
"""How long a message that is there may take to come on a busy machine."""


def arguments(folder: Path, *more: str) -> list[str | Path]:
    (folder / "entities.json").write_text(json.dumps(ENTITIES))
    data, entities = folder / "data", folder / "entities.json"
    return ["gateway", "--data", data, "--http-port", "0", "--amqp-port", "0", "--entities", entities, *more]


@contextmanager
def pipeline(data: Path) -> Iterator[None]:
    """Judges what the gateway accepts, for the block."""
    ended = threading.Event()
    # As the real one does: whichever process comes first, the folder is its owner's alone.
    Folders(data).make()
    judging = InProcessPipeline(Folders(data))

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
        opened = f"Oncebus accepts messages: {client.url} (deliveries begin when Spark is ready)\n"
        until(lambda: running.out.read_text() == opened, "it says that it accepts messages, and nothing more")
        with pipeline(data):
            assert running.ready() == client.url
            assert client.health() == 200
            assert client.receive("orders", PATIENCE) == ("a", "sent before there was a pipeline")
        assert running.stop() == 0
        assert not (data / "address").exists()


def test_what_was_dropped_is_shown_by_the_command(tmp_path: Path) -> None:
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
        assert [(drop["messageId"], drop["sequenceNumber"]) for drop in drops] == [(odd, 2), (odd, 3)]
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


def test_a_token_of_the_command_is_taken(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path):
        client = Client(address(data), data)
        made = CliRunner().invoke(main, ["token", "--entity", "orders", "--data", str(data)]).output.strip()
        request = ("GET", "/orders/$duplicates")
        assert client.request(*request, headers={"Authorization": made}, signed=False)[0] == 200
        assert client.request("GET", "/metrics", headers={"Authorization": made}, signed=False)[0] == 401
        assert client.request(*request, signed=False)[0] == 401


def test_killed_and_started_again_it_has_what_it_accepted(tmp_path: Path) -> None:
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
        # A look waits two seconds for what was sent before; on a busy machine that may be too short.
        until(lambda: [drop["messageId"] for drop in client.drops("orders")] == ["a"], "the drop")


def taken(client: Client) -> tuple[str, int, datetime]:
    """The next message: its id, its number, and when it was enqueued."""
    found = client.receive_whole("orders", PATIENCE)
    assert found is not None
    told = found[0]
    return told["MessageId"], told["SequenceNumber"], parsedate_to_datetime(told["EnqueuedTimeUtc"])


def test_a_machine_whose_clock_is_set_back_or_far_ahead_loses_no_time_and_keeps_no_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of all that is on the machine: of the gateway, the pipeline and the client."""
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
            until(lambda: "time stands still" in running.err.read_text(), "it is said")

            clock.set_wrong(24 * hour)
            refused = client.request("POST", "/orders/messages", "5", {"BrokerProperties": '{"MessageId": "c"}'})
            assert (refused[0], refused[1]["retry-after"]) == (503, "10")
            assert "The clock leapt " in refused[2]
            assert "Messages are refused until it is set right" in refused[2]
            until(lambda: client.health() == 503, "it is shown")
            assert "The clock leapt " in running.err.read_text()
            # Neither what is held nor the client's token has expired.
            found.append(taken(client))

            clock.set_wrong(0)
            assert client.send("orders", "c", "6") == 201
            found.append(taken(client))
            until(lambda: client.health() == 200, "all is well again")
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


def test_after_a_start_with_a_clock_far_ahead_it_asks_for_a_repair_and_then_goes_on(
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
        until(lambda: client.metric("messages_accepted_total", entity="orders") == 2, "both are there")
        assert running.stop() == 0
    clock.set_wrong(0)

    with gateway(tmp_path, name="refused", within=clock.within) as running:
        assert running.process.wait(60) == 1
        [line] = running.err.read_text().splitlines()
        assert line.startswith(f"oncebus: The newest message in store '{data}/store.db' was accepted at ")
        assert line.endswith(f"If it was wrong then, run: oncebus repair clock --data '{data}'")

    repaired = CliRunner().invoke(main, ["repair", "clock", "--data", str(data)])
    assert (repaired.exit_code, repaired.stderr) == (0, "")
    assert "2 ids in the ledger" in repaired.stdout
    assert "1 message in the store" in repaired.stdout

    with gateway(tmp_path, name="again", within=clock.within) as running, pipeline(data):
        client = Client(running.ready(), data)
        assert client.health() == 200
        assert client.send("orders", "a", "3") == 201
        found = taken(client)
        assert found[:2] == ("b", 2)
        assert found[2] <= datetime.now(UTC)
        assert [drop["messageId"] for drop in client.drops("orders")] == ["a"]


def test_it_ends_when_the_process_that_started_it_is_gone(tmp_path: Path) -> None:
    """The starter is killed, so it can tell nobody."""
    words = [sys.executable, "-m", "oncebus.cli", *map(str, arguments(tmp_path))]
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


def test_a_data_folder_is_for_one_gateway(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_broker(tmp_path, pipeline=False):
            await run_gateway(Settings(data=tmp_path, http_port=0, amqp_port=0))

    with pytest.raises(InboxInUse, match="is being written by another process"):
        asyncio.run(run())


def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = CliRunner().invoke(main, ["gateway", "--data", str(tmp_path), "--http-port", str(port)])
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"oncebus: Cannot listen at 127.0.0.1, port {port}: the port is in use. "
        "Stop what listens there, or give another with --http-port.\n"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (Settings(shards=3), "shards"),
        (Settings(namespace="two"), "is of the namespace 'oncebus'. Set it to that."),
        (Settings(tier="Basic"), "Basic"),
    ],
)
def test_what_does_not_fit_the_data_that_is_there_is_refused(tmp_path: Path, changed: Settings, said: str) -> None:
    async def run() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            await broker.change(lambda catalogue, now: catalogue.created(Topic(name="t"), now))
        await run_gateway(replace(changed, data=tmp_path, http_port=0, amqp_port=0))

    with pytest.raises(OncebusError, match=said):
        asyncio.run(run())


def test_a_tier_that_was_changed_meanwhile_stays_unless_a_tier_is_given(tmp_path: Path) -> None:
    tiers = []

    async def run(settings: Settings) -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            await broker.change(lambda catalogue, now: catalogue.at_tier(Tier.PREMIUM))
            await _bring_up_to_date(broker, settings, [])
            tiers.append(broker.catalogue.namespace.tier)

    for settings in (Settings(), Settings(tier="Basic")):
        asyncio.run(run(settings))
    assert tiers == [Tier.PREMIUM, Tier.BASIC]


def amqp_port(running: Running) -> int:
    """Where it speaks AMQP, as its log tells."""

    def told() -> list[int]:
        lines = running.err.read_text().splitlines(keepends=True)
        facts = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each["amqp_port"] for each in facts if "amqp_port" in each]

    until(told, f"it listens, {running.err.read_text()}")
    return told()[0]


@pytest.mark.parametrize("certificate", ["none", "given", "its own"])
def test_it_speaks_amqp_with_tls_where_it_has_a_certificate(tmp_path: Path, certificate: str) -> None:
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


def test_the_keys_are_for_the_owner_alone_and_in_no_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with gateway(tmp_path, "--log-level", "debug") as running:
        client = Client(address(data), data)
        client.send("orders", "a", "x")
        client.request("GET", "/orders/$duplicates", headers={"Authorization": "SharedAccessSignature sig=secret"})
        running.stop()
    key = json.loads((data / "keys.json").read_text())["rules"][0]["primary"]
    assert os.stat(data / "keys.json").st_mode & 0o777 == 0o600
    assert key not in running.err.read_text() + running.out.read_text()
