"""Driver, executors, Python workers and broker are killed at any moment: each message arrives once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.cluster import QUICK_JVM, Cluster
from tests.programs.serve.clients import everything_below
from tests.programs.serve.programs import ROOT, until
from tests.spark.streams import rows_in

from .bus import DETECTS, QUICK, Bus, text

LIMIT = 240.0
AT_ONCE = 25
"""How many messages are sent between two kills."""


class Journey:
    """The program, and the messages on their way through it."""

    def __init__(self, bus: Bus, folder: Path, seed: int, cluster: Cluster | None) -> None:
        self.bus, self.folder, self.chance, self.cluster = bus, folder, random.Random(seed), cluster
        self.sent = 0
        self.kills: Counter[str] = Counter()
        self.name = f"killed-{seed}"
        self.source = bus.queue(f"{self.name}-source", **DETECTS, **QUICK)
        self.target = bus.queue(f"{self.name}-target", **DETECTS, **QUICK)
        (folder / "string").write_text(bus.string)
        self.driver = self.started()

    def started(self) -> subprocess.Popen[bytes]:
        master = self.cluster.master if self.cluster else "local[2,20]"
        errors = (self.folder / "driver.err").open("ab")
        with errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.connector.killed", master, str(self.folder), self.name],
                cwd=ROOT,
                env=os.environ | QUICK_JVM | (self.cluster.environment if self.cluster else {}),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def send(self) -> None:
        """Send some messages. If the broker is away, send them again: it drops those that it has."""
        numbers = range(self.sent, self.sent + AT_ONCE)
        batch = [ServiceBusMessage(str(number), message_id=str(number)) for number in numbers]
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                self.bus.send(self.source, batch)
            except ServiceBusError:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            else:
                self.sent += AT_ONCE
                return

    def committed(self) -> int:
        """Return how many batches the program has committed."""
        folders = (self.folder / f"checkpoint-{name}" / "commits" for name in ("table", "target"))
        return sum(name.name.isdigit() for each in folders if each.exists() for name in each.iterdir())

    def until_it_works(self) -> None:
        """Wait until the program has committed another batch, and then for a fraction of one."""
        before = self.committed()
        until(lambda: self.committed() > before or self._has_ended(), "another batch", limit=LIMIT)
        time.sleep(self.chance.random())

    def kill(self, what: str) -> None:
        self.kills[what] += 1
        if what == "driver":
            self.end()
            self.driver = self.started()
        elif what == "executor":
            assert self.cluster is not None
            chosen = self.cluster
            until(lambda: chosen.kill_executor(self.chance) or self._has_ended(), "an executor to kill", limit=LIMIT)
        elif what == "worker":
            pids = [pid for pid in everything_below(self.driver.pid) if "-m\0pyspark" in _command(pid)]
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(pids), signal.SIGKILL)
        else:
            self.bus.kill()

    def end(self) -> None:
        """Kill the driver, its JVM and the Python workers at the same instant."""
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def _has_ended(self) -> bool:
        """Start the program again if a killed worker has ended its query, as whoever runs it would."""
        if self.driver.poll() is not None:
            self.kills["query"] += 1
            self.driver = self.started()
        return False

    def arrived(self) -> None:
        """Wait until all messages have arrived, and check that each did so once, in the table and in the queue."""
        found: Counter[str] = Counter()
        deadline = time.monotonic() + LIMIT
        with self.bus.client() as client, client.get_queue_receiver(self.target) as receiver:
            while len(found) < self.sent:
                assert time.monotonic() < deadline, f"{self.report()}: {len(found)} of {self.sent}"
                self._has_ended()
                for message in receiver.receive_messages(100, max_wait_time=5):
                    found[text(message)] += 1
                    receiver.complete_message(message)
            found.update(map(text, receiver.receive_messages(100, max_wait_time=2)))
        self.bus.emptied(self.source, within=LIMIT)
        self.end()
        expected = Counter(str(number) for number in range(self.sent))
        assert found == expected, self.report()
        # The source gives each message to one batch, so that detection has nothing to find.
        assert Counter(self.rows()) == Counter((body, False) for body in expected), self.report()

    def rows(self) -> list[tuple[str, bool]]:
        """Return the body and the verdict of each row in the table."""
        found = rows_in(self.folder / "table", "body", "is_duplicate")
        return [(row["body"].decode(), row["is_duplicate"]) for row in found]

    def report(self) -> str:
        errors = (self.folder / "driver.err").read_text()[-3000:]
        return f"{dict(self.kills)}, {self.sent} messages\n{errors}"


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def killed(bus: Bus, folder: Path, kills: list[str], seed: int, cluster: Cluster | None = None) -> None:
    began = time.monotonic()
    journey = Journey(bus, folder, seed, cluster)
    try:
        for what in kills:
            journey.send()
            journey.until_it_works()
            journey.kill(what)
        journey.send()
        journey.arrived()
        seconds = time.monotonic() - began
        print(f"\nseed {seed}: {dict(journey.kills)}, {journey.sent} messages, each once, in {seconds:.0f} seconds")
    finally:
        if journey.driver.poll() is None:
            journey.end()


@pytest.mark.release
def test_killed_twice(bus: Bus, tmp_path: Path, seed: int) -> None:
    killed(bus, tmp_path, random.Random(seed).sample(["driver", "broker"], 2), seed)


# Fifty kills in all, ten for each seed.


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(3))
def test_killed_on_one_machine(bus: Bus, tmp_path: Path, seed: int) -> None:
    kinds = ["driver"] * 3 + ["worker"] * 4 + ["broker"] * 3
    killed(bus, tmp_path, random.Random(seed).sample(kinds, len(kinds)), seed)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(3, 5))
def test_killed_on_a_cluster(bus: Bus, cluster: Cluster, tmp_path: Path, seed: int) -> None:
    """Executors that lose their driver still run for a moment, beside those of the next driver."""
    kinds = ["driver"] * 3 + ["executor"] * 5 + ["broker"] * 2
    killed(bus, tmp_path, random.Random(seed).sample(kinds, len(kinds)), seed, cluster)
