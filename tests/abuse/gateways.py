"""A gateway to attack, in its own process, with detection and routing in another. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from oncebus.model.access import AuthorizationRule, KeyFile, Right
from oncebus.programs.serve.certificate import CERTIFICATE
from tests.programs.serve.clients import Client, Running
from tests.programs.serve.programs import ROOT

QUEUES = ("quiet", "noisy")
"""The queues of every gateway: one for a victim, one for an attacker."""


class Gateway:
    """A running gateway, seen from outside. With TLS, clients trust `certificate`. `judge` is the pipeline."""

    def __init__(
        self, running: Running, data: Path, url: str, ports: dict[str, int], judge: subprocess.Popen[bytes]
    ) -> None:
        self.running, self.data, self.url, self.judge = running, data, url, judge
        self.amqp_port, self.http_port = ports["amqp_port"], ports["http_port"]
        self.port = ports.get("port")
        """The port that serves everything, if there is one."""
        self.pid = running.process.pid
        self.certificate = data / CERTIFICATE if url.startswith("https") else None
        self.http = Client(url, data)
        self.keys = KeyFile(data / "keys.json")
        self.root = self.keys.rules()[0]

    def port_of(self, protocol: str) -> int:
        """Return the port of `amqp` or `http`, or the one that serves `both`."""
        ports = {"amqp": self.amqp_port, "http": self.http_port}
        if self.port is not None:
            ports["both"] = self.port
        return ports[protocol]

    def rule(self, name: str, *rights: Right) -> AuthorizationRule:
        """Add a rule with these rights to the namespace."""
        return self.keys.put(name, rights)

    def log(self) -> list[dict[str, Any]]:
        """Return the gateway's log so far."""
        lines = self.running.err.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


@contextmanager
def running_gateway(
    folder: Path,
    *options: str,
    entities: Sequence[dict[str, object]] = (),
    tls: bool = False,
    descriptors: int | None = None,
) -> Iterator[Gateway]:
    """Yield a ready gateway over `folder`/data, with `QUEUES` and the given entities.

    `descriptors` is the process's hard and soft limit of open files.
    """
    data, file = folder / "data", folder / "entities.json"
    file.write_text(json.dumps([*({"type": "queue", "name": name} for name in QUEUES), *entities]))
    words = ["gateway", "--data", str(data), "--entities", str(file), "--log-format", "json", "--http-port", "0"]
    words += ["--amqps-port", "0", "--tls"] if tls else ["--amqp-port", "0"]
    within = () if descriptors is None else ("prlimit", f"--nofile={descriptors}")
    with ExitStack() as stack:
        running = Running(folder, "gateway", [*words, *options], within=within)
        stack.callback(running.clean_up)
        judge = stack.enter_context(_judge(data))
        url = running.ready()
        gateway = Gateway(running, data, url, _ports(running), judge)
        yield gateway
        assert running.process.poll() is None, "the gateway did not survive"
        assert running.stop() == 0


@contextmanager
def _judge(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run detection and routing in a separate process, so that attackers in the test process do not slow them down."""
    words = [sys.executable, "-m", "tests.abuse.judge", str(data)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE) as judging:
        assert judging.stdin is not None
        try:
            yield judging
            judging.stdin.close()
            assert judging.wait(30) == 0
        finally:
            judging.kill()


def _ports(running: Running) -> dict[str, int]:
    for line in running.err.read_text().splitlines():
        found: dict[str, Any] = json.loads(line)
        if "amqp_port" in found:
            return found
    raise AssertionError("the gateway did not log its ports")
