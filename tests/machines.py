"""Runs a standalone Spark cluster whose workers are machines of their own: each in its own PID namespace.

A process on one of them cannot see whether the driver, or a process on another one, is alive. A machine can be paused,
as a whole or one of its processes alone; it can go on; and it can be lost with everything on it. Needs Linux,
and `unshare`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tests.cluster import QUICK_JVM, daemon, running_master, wait_for, worker_command
from tests.drivers import LOSES_EXECUTORS, MAY_BE_KILLED
from tests.stalling import STALLS

ROOT = Path(__file__).parents[1]
LIMIT = 240.0

Kind = Literal["worker", "executor", "python daemon", "python"]

GIVES_UP_SOON = {
    "spark.worker.timeout": "8",
    "spark.network.timeout": "12s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeoutInterval": "4s",
}
"""The settings of a cluster that takes a silent machine for lost after some seconds instead of minutes."""


@dataclass(frozen=True)
class Machine:
    """A worker of the cluster and everything that it has started."""

    name: str
    process: subprocess.Popen[bytes]

    def processes(self, *kinds: Kind) -> list[int]:
        """Return the processes on this machine, of these kinds or all, as the test sees their ids."""
        found = {}
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{self.process.pid}/ns/pid_for_children")
            for path in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if os.readlink(path / "ns" / "pid") == namespace:
                        found[int(path.name)] = path
        return [pid for pid, path in sorted(found.items()) if not kinds or self._kind(path) in kinds]

    @staticmethod
    def _kind(path: Path) -> Kind | None:
        with suppress(OSError):
            command = (path / "cmdline").read_bytes()
            if b"deploy.worker.Worker" in command:
                return "worker"
            if b"ExecutorBackend" in command:
                return "executor"
            if b"stalling" in command:
                above = (path / "stat").read_text().rpartition(")")[2].split()[1]
                return "python" if b"stalling" in Path("/proc", above, "cmdline").read_bytes() else "python daemon"
        return None

    def signal(self, number: signal.Signals, *kinds: Kind) -> int:
        """Send a signal to the processes of these kinds. Return how many there were."""
        return sum(send(pid, number) for pid in self.processes(*kinds))

    def pause(self, *kinds: Kind) -> int:
        return self.signal(signal.SIGSTOP, *kinds)

    def go_on(self, *kinds: Kind) -> int:
        return self.signal(signal.SIGCONT, *kinds)

    def stalled(self) -> list[int]:
        """Return the Python workers that have stopped."""
        return [pid for pid in self.processes("python") if state_of(pid) == "T"]

    def lose(self) -> None:
        """End the machine and everything on it, at once and for ever."""
        left = self.processes()
        self.process.kill()
        self.process.wait()
        until(lambda: all(state_of(pid) in ("", "Z") for pid in left), f"{self.name} is lost")


@dataclass
class Machines:
    """The cluster. `stalls` is the folder of `stalling`, for orders."""

    master: str
    folder: Path
    stalls: Path
    stack: ExitStack
    cores: int = 1
    running: list[Machine] = field(default_factory=list)
    started: int = 0

    def add(self) -> Machine:
        """Start another machine."""
        self.started += 1
        name = f"machine-{self.started}"
        log = self.folder / f"{name}.log"
        privilege = ["--map-root-user"] if os.geteuid() else []
        alone = ["unshare", *privilege, "--pid", "--fork", "--mount-proc", "--kill-child"]
        command = worker_command(self.master, self.folder, cores=self.cores)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(STALLS, str(self.stalls))
            patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
            process = self.stack.enter_context(daemon(log, *command, under=alone))
        machine = Machine(name, process)
        self.stack.callback(machine.lose)
        wait_for(log, "Successfully registered with master")
        self.running.append(machine)
        return machine

    def lose(self, machine: Machine) -> None:
        self.running.remove(machine)
        machine.lose()

    def stalled(self) -> list[Machine]:
        """Return the machines on which a Python worker has stopped."""
        return [machine for machine in self.running if machine.stalled()]

    def driver(self, script: Sequence[str], log: Path) -> Driver:
        """Start a driver, on the test's own machine."""
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(self.folder / "conf")}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *script],
                cwd=ROOT,
                env=os.environ | QUICK_JVM | environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        driver = Driver(process)
        self.stack.callback(driver.kill)
        return driver


@dataclass(frozen=True)
class Driver:
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill the driver's Python and its JVM at the same instant."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def running_machines(folder: Path, *, machines: int = 2, cores: int = 1) -> Iterator[Machines]:
    """Run a cluster for the block."""
    stalls = folder / "stalls"
    stalls.mkdir()
    chosen = LOSES_EXECUTORS | MAY_BE_KILLED | GIVES_UP_SOON | {"spark.python.daemon.module": "tests.stalling"}
    with running_master(folder, chosen) as master, ExitStack() as stack:
        cluster = Machines(master, folder, stalls, stack, cores)
        for _ in range(machines):
            cluster.add()
        yield cluster


def send(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def state_of(pid: int) -> str:
    """Return the state of a process as `ps` shows it, like T if it has stopped; empty if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def until_idle(pids: Sequence[int]) -> None:
    """Wait until these processes have waited for something else for a while, or have ended."""
    quiet = 0

    def is_idle() -> bool:
        nonlocal quiet
        quiet = quiet + 1 if all(state_of(pid) in ("", "S", "Z") for pid in pids) else 0
        return quiet > 40

    until(is_idle, f"processes {pids} have nothing to do")


def until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """Wait until a condition holds. Real processes have no clock that a test could move."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:.0f} s for: {what}"
        time.sleep(0.05)
