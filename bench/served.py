"""`oncebus serve` as the benchmarks run it: how long it takes to start and to stop, and what its processes cost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

QUEUE = "bench"
PATIENCE = 120.0
ENTITIES = [{"name": QUEUE, "requiresDuplicateDetection": True, "lockDuration": "PT5M", "maxSizeInMegabytes": 5120}]
OPEN, READY = "Oncebus accepts messages", "Oncebus is ready"


@dataclass
class Served:
    """A broker that runs. `seconds` has how long after its start it was open and ready; and, later, its stop.

    `role` is what its first process does, and `for_clients` has further variables for the environment of clients.
    """

    process: subprocess.Popen[str]
    string: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    role: str = "supervisor"
    for_clients: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client."""
        return {**os.environ, "SERVICEBUS_CONNECTION_STRING": self.string, "QUEUE": QUEUE, **self.for_clients}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of its processes until now, by what they do, with those that have ended."""
        return cpu_below(self.process.pid, self.role)

    @contextlib.contextmanager
    def costs(self) -> Iterator[dict[str, Cost]]:
        """What its processes cost in a second of the block, filled in at its end. A CPU of 0.01 is 1 % of a core.

        A process that ends or starts meanwhile is left out.
        """
        found: dict[str, Cost] = {}
        before, began = self._costs(), time.perf_counter()
        yield found
        after, passed = self._costs(), time.perf_counter() - began
        for pid in before.keys() & after.keys():
            used = Cost((after[pid].cpu - before[pid].cpu) / passed, (after[pid].wakes - before[pid].wakes) / passed)
            name = self.role if pid == self.process.pid else role_of(pid)
            found[name] = found.get(name, Cost()) + used

    def _costs(self) -> dict[int, Cost]:
        return {pid: cost_of(pid) for pid in (self.process.pid, *below(self.process.pid))}

    def stop(self) -> None:
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.seconds["stop"] = time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU, and how often its threads were woken."""

    cpu: float = 0.0
    wakes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu + other.cpu, self.wakes + other.wakes)


@contextlib.contextmanager
def served(environment: Mapping[str, str] | None = None, *options: str) -> Iterator[Served]:
    """A broker over a new data folder with a queue that detects duplicates, ready; it is stopped at the end."""
    with tempfile.TemporaryDirectory(
        prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK"), ignore_cleanup_errors=True
    ) as scratch:
        entities = Path(scratch) / "entities.json"
        entities.write_text(json.dumps(ENTITIES))
        command = [sys.executable, "-m", "oncebus.programs.cli", "serve", "--data", str(Path(scratch) / "data")]
        command += ["--http-port", "0", "--amqp-port", "0", "--master", "local[2]", "--entities", str(entities)]
        command.append("--print-connection-string")
        given = {
            name: value
            for name, value in os.environ.items()
            if name == "ONCEBUS_CACHE" or not name.startswith("ONCEBUS_")
        }
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, *options], env={**given, **(environment or {})}, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        running = Served(process)
        try:
            for line in process.stdout:
                if line.startswith("Endpoint="):
                    running.string = line.strip()
                elif line.startswith(OPEN):
                    running.seconds["open"] = time.perf_counter() - began
                elif line.startswith(READY):
                    running.seconds["ready"] = time.perf_counter() - began
                    break
            assert "ready" in running.seconds, "the broker did not start"
            yield running
            running.stop()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)
            process.stdout.close()


def role_of(pid: int) -> str:
    """What a process below the first one of a broker does."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return "ended"
    if words[0].endswith("java"):
        return "Java"
    known = {"gateway": "gateway", "pipeline": "driver", "pyspark.daemon": "Python workers"}
    return next((known[word] for word in words if word in known), "planner")


def below(pid: int) -> list[int]:
    """All processes below a process."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(each.name))
    found: list[int] = []
    left = [pid]
    while left:
        children = parents.get(left.pop(0), [])
        found += sorted(children)
        left += sorted(children)
    return found


def cost_of(pid: int) -> Cost:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        wakes = 0
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            with contextlib.suppress(OSError):
                lines = status.read_text().splitlines()
                wakes += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    except OSError:
        return Cost(0, 0)
    return Cost((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), wakes)


def cpu_below(root: int, role: str) -> dict[str, float]:
    """Return the CPU seconds of a process, whose role is given, and of all below it, by their roles.

    A process that has ended counts for its parent: Spark's workers for the daemon that forks them. So a difference of
    two calls is complete, no matter which processes came and went in between.
    """
    found: dict[str, float] = {}
    for pid in (root, *below(root)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            name = role if pid == root else role_of(pid)
            used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            found[name] = found.get(name, 0.0) + used
    return found


def since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the CPU seconds between two calls of `cpu_below`, by role, and of all."""
    used = {role: after[role] - before.get(role, 0.0) for role in sorted(after)}
    return {**used, "all": sum(used.values())}


def resident_bytes(root: int) -> int:
    """Return the memory of a process and of all below it. What several of them share counts once for each."""
    total = 0
    for pid in (root, *below(root)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total
