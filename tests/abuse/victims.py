"""Clients that send and receive during an attack.

`with victim(gateway) as somebody:` runs one in its own process. It repeatedly sends a message, receives it and settles
it, and opens a new connection every few rounds. It never retries: its first failure fails the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.programs.serve.programs import ROOT, until

from .gateways import Gateway
from .victim import PATIENCE, ROUNDS


class Victim:
    """The results of a victim so far: the seconds that each of its rounds and each of its sends took."""

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.sends: list[float] = []
        self.error: str | None = None
        self.has_ended = False

    @property
    def slowest(self) -> float:
        """Return the longest round in seconds, which shows how long the gateway stood still."""
        return max(self.rounds, default=0.0)

    def goes_on(self, rounds: int = 2 * ROUNDS) -> None:
        """Wait for this many more rounds, at least one on a new connection. Fails if the victim has failed."""
        wanted = len(self.rounds) + rounds
        until(lambda: self.has_ended or len(self.rounds) >= wanted, f"{rounds} rounds of the victim", limit=PATIENCE)
        assert not self.has_ended, f"the victim failed after {len(self.rounds)} rounds: {self.error}"


@contextmanager
def victim(gateway: Gateway, protocol: str = "amqp", queue: str = "quiet") -> Iterator[Victim]:
    """Run a client during the block that uses the gateway over `amqp` or `http`, or AMQP at the port of `both`.

    With `health` it asks for the gateway's health.
    """
    given = {
        "protocol": protocol if protocol in ("http", "health") else "amqp",
        "queue": queue,
        "port": gateway.port_of("http" if protocol == "health" else protocol),
        "certificate": None if gateway.certificate is None else str(gateway.certificate),
        "data": str(gateway.data),
        "url": gateway.url,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.abuse.victim", json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines, found = process.stdout, Victim()

    def listen() -> None:
        for line in lines:
            content = json.loads(line)
            if isinstance(content, str):
                found.error = content
            else:
                found.sends.append(content[1])
                found.rounds.append(content[0])
        found.has_ended = True

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        found.goes_on(1)
        yield found
        process.stdin.close()
        assert process.wait(2 * PATIENCE) == 0, found.error
    finally:
        print(f"victim over {protocol}: {len(found.rounds)} rounds, the slowest took {found.slowest:.2f} s")
        process.kill()
        process.wait()
        listening.join()
        process.stdin.close()
        process.stdout.close()
