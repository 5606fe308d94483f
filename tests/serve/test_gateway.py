"""The gateway as a process of its own, with the pipeline in the test's: no Spark."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from broker.in_process import InProcessPipeline, running_broker
from oncebus.access import KeyFile
from oncebus.broker.clock import wall_time
from oncebus.cli import main
from oncebus.entities import Topic
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.inbox import InboxInUse
from oncebus.serve.certificate import CERTIFICATE, own_certificate
from oncebus.serve.gateway import run_gateway
from oncebus.settings import Settings

from .clients import ENVIRONMENT, Client, Running
from .programs import is_alive, until

ENTITIES = [{"type": "queue", "name": "orders", "requiresDuplicateDetection": True}]


def arguments(folder: Path, *more: str) -> list[str | Path]:
    (folder / "entities.json").write_text(json.dumps(ENTITIES))
    data, entities = folder / "data", folder / "entities.json"
    return ["gateway", "--data", data, "--http-port", "0", "--amqp-port", "0", "--entities", entities, *more]


@contextmanager
def pipeline(data: Path) -> Iterator[None]:
    """Judges what the gateway accepts, for the block."""
    ended = threading.Event()
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
def gateway(folder: Path, *more: str, name: str = "gateway") -> Iterator[Running]:
    running = Running(folder, name, arguments(folder, *more))
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
        assert running.out.read_text() == ""
        with pipeline(data):
            assert running.ready() == client.url
            assert client.health() == 200
            assert client.receive("orders", 5) == ("a", "sent before there was a pipeline")
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
        assert client.receive("orders", 5) == (odd, "first")
        assert client.receive("orders", 5) == ("other", "x")
        shown = CliRunner().invoke(main, ["duplicates", "orders", "--json", "--data", str(data)])
        assert shown.exit_code == 0, shown.output
        drops = [json.loads(line) for line in shown.output.splitlines()]
        assert [(drop["messageId"], drop["sequenceNumber"]) for drop in drops] == [(odd, 2), (odd, 3)]
        assert [drop["original"]["sequenceNumber"] for drop in drops] == [1, 1]

        by_id = ["duplicates", "orders", "--data", str(data), "--message-id"]
        table = CliRunner().invoke(main, [*by_id, odd])
        assert "a/b ö [red]\\x1b[2J" in table.output
        assert "\x1b" not in table.output
        assert "No duplicates" in CliRunner().invoke(main, [*by_id, "other"]).output
        late = ["--since", "2999-01-01T00:00:00Z"]
        assert "No duplicates" in CliRunner().invoke(main, [*by_id, odd, *late]).output

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
        assert client.receive("orders", 5) == ("a", "1")
        assert client.receive("orders", 0.1) is None
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
        "Stop what listens there, or give another.\n"
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
            await broker.change(lambda catalogue, now: catalogue.create_topic(Topic(name="t"), now))
        await run_gateway(replace(changed, data=tmp_path, http_port=0, amqp_port=0))

    with pytest.raises(OncebusError, match=said):
        asyncio.run(run())


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
            timeout=10,
            ssl_domain=domain,
            user=rule.name,
            password=rule.primary_key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        connection.create_sender("orders").send(Message(body="x", id="a"))
        if not is_encrypted:
            metrics = Client(address(data), data).request("GET", "/metrics")[2]
            assert "oncebus_amqp_connections 1\n" in metrics
            assert "oncebus_amqp_senders 1\n" in metrics
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
