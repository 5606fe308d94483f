"""Driver, executors and broker are killed at any moment: every message arrives once, in the table and at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from cluster import Cluster
from drivers import committed, kill_driver, start_driver
from serve.clients import everything_below
from serve.programs import until

from .bus import DETECTS, QUICK, Bus, rows_of, text

LIMIT = 240.0
AT_ONCE = 25
"""How many messages are sent between two kills."""
STOPPED = 8.0
"""How long a driver is stopped, in seconds: longer than the locks of `QUICK`."""


class Journey:
    """The program, and the messages on their way through it. Without a cluster, it runs in one process."""

    def __init__(self, bus: Bus, folder: Path, seed: int, cluster: Cluster | None = None) -> None:
        self.bus, self.folder, self.chance, self.cluster = bus, folder, random.Random(seed), cluster
        self.sent = 0
        self.faults: Counter[str] = Counter()
        self.name = f"killed-{seed}"
        self.source = bus.queue(f"{self.name}-source", **DETECTS, **QUICK)
        self.target = bus.queue(f"{self.name}-target", **DETECTS, **QUICK)
        (folder / "string").write_text(bus.string)
        self.driver = self.started()

    def started(self) -> subprocess.Popen[bytes]:
        master = "local[2,20]" if self.cluster is None else self.cluster.master
        environment = {} if self.cluster is None else self.cluster.environment
        with (self.folder / "driver.err").open("ab") as errors:
            return start_driver("connector.killed", [master, self.folder, self.name], errors, environment)

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

    def until_it_works(self) -> None:
        """Wait until the program has committed another batch, and then for a fraction of one."""
        checkpoints = [self.folder / f"checkpoint-{name}" for name in ("table", "target")]
        before = committed(*checkpoints)
        until(lambda: committed(*checkpoints) > before or self._has_ended(), "another batch", limit=LIMIT)
        time.sleep(self.chance.random())

    def harm(self, what: str) -> None:
        """Kill the driver, the broker, both ("machine"), an executor or a Python process; or stop the driver."""
        if what in ("driver", "machine"):
            kill_driver(self.driver)
        if what in ("broker", "machine"):
            self.bus.kill()
        if what in ("driver", "machine"):
            self.driver = self.started()
        elif what == "executor":
            assert self.cluster is not None
            until(lambda: self.cluster.kill_executor(self.chance), "an executor is killed", limit=LIMIT)  # type: ignore[union-attr]
        elif what == "python":
            pids = [pid for pid in everything_below(self.driver.pid) if "-m\0pyspark" in _command(pid)]
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(pids), signal.SIGKILL)
        elif what == "stop":
            # Its Python processes are in a group of their own.
            pids = [self.driver.pid, *everything_below(self.driver.pid)]
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(STOPPED if number is signal.SIGSTOP else 0)
        self.faults[what] += 1

    def _has_ended(self) -> bool:
        """Start the program again if a killed process has ended its query, as whoever runs it would."""
        if self.driver.poll() is not None:
            self.faults["query"] += 1
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
        kill_driver(self.driver)
        expected = Counter(str(number) for number in range(self.sent))
        assert found == expected, self.report()
        assert Counter(body for body, is_duplicate in self.rows() if not is_duplicate) == expected, self.report()

    def rows(self) -> list[tuple[str, bool]]:
        """Return the body and the verdict of each row in the table."""
        found = rows_of(self.folder / "table", "body", "is_duplicate")
        return [(row["body"].decode(), row["is_duplicate"]) for row in found]

    def report(self) -> str:
        errors = (self.folder / "driver.err").read_text()[-3000:]
        return f"{dict(self.faults)}, {self.sent} messages\n{errors}"


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def survive(journey: Journey, faults: list[str]) -> None:
    began = time.monotonic()
    try:
        for what in faults:
            journey.send()
            journey.until_it_works()
            journey.harm(what)
        journey.send()
        journey.arrived()
        rows, seconds = journey.rows(), time.monotonic() - began
        again = sum(is_duplicate for _, is_duplicate in rows)
        print(
            f"\n{journey.name}: {dict(journey.faults)}, {journey.sent} messages, each once; {len(rows)} rows in the "
            f"table, {again} of them duplicates; {seconds:.0f} seconds"
        )
    finally:
        if journey.driver.poll() is None:
            kill_driver(journey.driver)


def test_killed_three_times(bus: Bus, tmp_path: Path) -> None:
    """The driver, and then driver and broker at the same instant. `test_connector_away` is about the broker alone."""
    survive(Journey(bus, tmp_path, seed=random.randrange(10, 10**6)), ["driver", "machine"])


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_killed_fifty_times(bus: Bus, cluster: Cluster, tmp_path: Path, seed: int) -> None:
    """Each of five journeys has ten kills, and is stopped once for longer than its locks last."""
    kinds = ["driver"] * 3 + ["executor"] * 2 + ["python"] * 2 + ["broker"] * 3 + ["stop"]
    survive(Journey(bus, tmp_path, seed, cluster), random.Random(seed).sample(kinds, len(kinds)))
