"""An HTTP client for tests, and the processes of a broker."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oncebus.broker.clock import wall_time
from oncebus.model.access import KeyFile, make_token
from oncebus.programs.serve.certificate import CERTIFICATE
from oncebus.values.durations import HOUR
from tests.cluster import QUICK_JVM
from tests.protocols.atom.admin import VERSION, description, elements

from .programs import is_alive, until

_KEPT = "ONCEBUS_CACHE"
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name == _KEPT or not name.startswith("ONCEBUS_")
} | QUICK_JVM
READY = re.compile(r'^(?:{.*"message": ")?Oncebus is ready: (https?://[^\s"]+)(?:"})?$', re.MULTILINE)
BATCH = "application/vnd.microsoft.servicebus.json"


class Client:
    """Sends requests to one broker. Signs with the root key of its data folder and trusts the certificate there."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self._data = data
        rule = KeyFile(data / "keys.json").rules()[0]
        self._token = make_token(url, rule.name, rule.primary_key, wall_time() + HOUR)

    def exchange(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, *, signed: bool = True
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request on a new connection. Return the status, the headers and the body."""
        connection = self._connection()
        try:
            given = dict(headers or {}) | ({"Authorization": self._token} if signed else {})
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        place = urlsplit(self.url)
        if place.scheme == "http":
            return http.client.HTTPConnection(place.netloc, timeout=60)
        trusting = ssl.create_default_context(cafile=self._data / CERTIFICATE)
        return http.client.HTTPSConnection(place.netloc, timeout=60, context=trusting)

    def request(
        self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None, *, signed: bool = True
    ) -> tuple[int, dict[str, str], str]:
        status, found, answer = self.exchange(method, path, body.encode(), headers, signed=signed)
        return status, found, answer.decode()

    def send(self, queue: str, message_id: str, body: str) -> int:
        return self.send_with(queue, body, MessageId=message_id)

    def send_with(self, queue: str, body: str, **properties: object) -> int:
        """Send a message with these broker properties."""
        return self.request("POST", f"/{queue}/messages", body, {"BrokerProperties": json.dumps(properties)})[0]

    def send_batch(self, queue: str, messages: Sequence[tuple[str, dict[str, object]]]) -> int:
        """Send messages, each a body and its broker properties, in one request."""
        items = [{"Body": body, "BrokerProperties": properties} for body, properties in messages]
        return self.request("POST", f"/{queue}/messages", json.dumps(items), {"Content-Type": BATCH})[0]

    def receive_whole(self, queue: str, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """Receive and delete the next message. Return its broker properties and body; None if none comes."""
        status, headers, body = self.exchange("DELETE", f"/{queue}/messages/head?timeout={seconds}")
        if status == 204:
            return None
        assert status == 200, (status, body)
        return json.loads(headers["brokerproperties"]), body

    def receive(self, queue: str, seconds: float) -> tuple[str, str] | None:
        """Receive and delete the next message. Return its id and body; None if none comes."""
        found = self.receive_whole(queue, seconds)
        return None if found is None else (found[0]["MessageId"], found[1].decode())

    def receive_all(self, queue: str) -> list[tuple[dict[str, Any], str]]:
        """Receive and delete all messages. Return the broker properties and body of each."""
        taken = []
        while (found := self.receive_whole(queue, 0)) is not None:
            taken.append((found[0], found[1].decode()))
        return taken

    def drops(self, queue: str) -> list[Any]:
        status, _, body = self.request("GET", f"/{queue}/$duplicates")
        assert status == 200, (status, body)
        found: list[Any] = json.loads(body)["duplicates"]
        return found

    def put(
        self, path: str, values: Mapping[str, object] | None = None, kind: str = "Queue", *, update: bool = False
    ) -> tuple[int, str]:
        """Create or update an entity, with the service's property names. Return the status and the answer's text."""
        body = description(f"{kind}Description", elements(**(values or {})))
        status, _, text = self.exchange("PUT", f"/{path}?{VERSION}", body, {"If-Match": "*"} if update else None)
        return status, text.decode()

    def delete(self, path: str) -> int:
        """Delete an entity."""
        return self.exchange("DELETE", f"/{path}?{VERSION}")[0]

    def metric(self, name: str, **labels: str) -> int:
        """Return the sum of a metric over all samples with these labels."""
        status, _, text = self.request("GET", "/metrics")
        assert status == 200, (status, text)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in text.splitlines() if re.match(rf"oncebus_{name}[{{ ]", line)]
        chosen = [line for line in lines if all(each in line for each in wanted)]
        assert chosen, f"no {name} of {labels}"
        return sum(int(float(line.rpartition(" ")[2])) for line in chosen)

    def health(self) -> int:
        return self.request("GET", "/health", signed=False)[0]


class Running:
    """A running `oncebus` command with its output in files."""

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: Sequence[str | Path],
        *,
        within: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """Start it. `within` is a command, like nsenter, that replaces itself by the command in its arguments."""
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "oncebus.programs.cli", *map(str, arguments)],
                stdout=out,
                stderr=err,
                env=ENVIRONMENT | environment,
                start_new_session=True,
            )

    def ready(self) -> str:
        """Wait until the command says that the broker is ready, and return the URL."""

        def said() -> re.Match[str] | None:
            assert self.process.poll() is None, self.err.read_text()
            return READY.search(self.out.read_text())

        until(said, f"ready, {self.err.read_text()}", limit=120)
        found = READY.search(self.out.read_text())
        assert found is not None
        return found[1]

    def child(self, name: str) -> int:
        """Return the process id of the gateway or pipeline that it started last."""
        for pid in map(int, _children(self.process.pid)):
            # A killed process may end during the check.
            with suppress(OSError):
                if name in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    return pid
        raise AssertionError(f"no {name}: {self.err.read_text()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(90)

    def clean_up(self) -> None:
        """Kill it if it still runs. Its child processes notice and end too."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _children(pid: int) -> list[str]:
    found: list[str] = []
    # Threads and processes may end during the check.
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += (task / "children").read_text().split()
    return found


def everything_below(pid: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    found = [int(child) for child in _children(pid)]
    return found + [each for child in found for each in everything_below(child)]


def all_end(pids: Sequence[int], why: str) -> None:
    """Wait until all these processes have ended. Kill those that do not end, and raise `AssertionError`."""
    try:
        until(lambda: not any(map(is_alive, pids)), why)
    except AssertionError as error:
        left = [pid for pid in pids if is_alive(pid)]
        commands = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in left]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"{error}, but these ran: {commands}") from None


def kill_everything(running: Running) -> None:
    """Kill a command and all its descendants at the same instant, as when the machine dies."""
    pids = [running.process.pid, *everything_below(running.process.pid)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.wait()
    all_end(pids, "all are killed")
