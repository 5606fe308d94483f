"""The faults of a run: their plan, which depends on the seed alone, and how each is injected and undone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.programs.serve.clients import everything_below
from tests.programs.serve.programs import until

from .service import Service

_PATIENCE = 90.0
_SPARK_STARTS = 45.0
_TRAFFIC = 5.0
"""The seconds that a cut waits for a suitable request or answer."""


@dataclass(frozen=True)
class Fault:
    """A fault. `kind` is one of `KINDS`, `size` is 0 to 1, `pause` precedes it, `seconds` is its duration, if any."""

    kind: str
    seconds: float
    size: float
    pause: float


def plan(seed: int, asked: str) -> list[Fault]:
    """Return the faults of a run. `asked` is their number, or a comma-separated list of kinds."""
    chance = random.Random(f"{seed} faults")
    if asked.isdigit():
        names: list[str] = []
        while len(names) < int(asked):
            # Every kind comes once before any kind is repeated.
            some = [kind for kind, often in OFTEN.items() for _ in range(often)]
            chance.shuffle(some)
            names += some
        names = names[: int(asked)]
    else:
        names = [each.strip() for each in asked.split(",")]
    return [
        Fault(
            kind,
            round(chance.uniform(0.5, 4.0), 2),
            round(chance.random(), 3),
            round(chance.uniform(0.2, 2.5), 2),
        )
        for kind in names
    ]


def wait_for(fault: Fault, service: Service) -> None:
    """Wait for the pause. Most faults first wait until the gateway answers again after the previous fault.

    A fault finds no bugs while nothing works anyway.
    """
    if fault.size < 0.8:
        until(service.http.is_answered, "the gateway answers", limit=_PATIENCE)
    time.sleep(fault.pause)


def inject(fault: Fault, service: Service) -> bool:
    """Inject a fault, and undo it if possible. Return False if it hit nothing: no request came, or no process ran."""
    return KINDS[fault.kind](fault, service)


def _kill(pids: Sequence[int]) -> bool:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _part(service: Service, name: str) -> list[int]:
    """Return the process of a part, if it is running."""
    try:
        return [service.running.child(name)]
    except (AssertionError, OSError):
        # It was killed a moment ago and has not restarted yet.
        return []


def _whole_part(service: Service, name: str) -> list[int]:
    return [each for pid in _part(service, name) for each in (pid, *everything_below(pid))]


def _kill_parts(*names: str) -> Callable[[Fault, Service], bool]:
    def kill(fault: Fault, service: Service) -> bool:
        """Kill a process with all its children, or alone; then the supervisor must clean up."""
        find = _part if fault.size < 0.5 else _whole_part
        return _kill([pid for name in names for pid in find(service, name)])

    return kill


def _kill_workers(fault: Fault, service: Service) -> bool:
    """Kill Spark's Python workers, or the daemon that forks them too. Wait until there are any."""
    deadline = time.monotonic() + _SPARK_STARTS
    while time.monotonic() < deadline:
        found = [pid for pid in _whole_part(service, "pipeline") if "pyspark.daemon" in _command(pid)]
        # The first is the daemon, the parent of the workers.
        if len(found) > 1:
            return _kill(found[1:] if fault.size < 0.7 else found)
        time.sleep(0.1)
    return False


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _stop(name: str) -> Callable[[Fault, Service], bool]:
    def stop(fault: Fault, service: Service) -> bool:
        pids = _whole_part(service, name)
        try:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(fault.seconds)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return bool(pids)

    return stop


def _kill_machine(fault: Fault, service: Service) -> bool:
    """Kill everything at once, then start it again."""
    service.restart()
    return True


def _fill_disk(fault: Fault, service: Service) -> bool:
    service.disk.fill()
    time.sleep(fault.seconds)
    service.disk.make_room()
    return True


def _set_clock(seconds: Callable[[Fault], float]) -> Callable[[Fault, Service], bool]:
    """Set the clock of the whole service wrong, and then right. A gateway that starts in between would trust it."""

    def step(fault: Fault, service: Service) -> bool:
        until(service.http.is_healthy, "the service is healthy", limit=_PATIENCE)
        service.clock.set_wrong(round(seconds(fault)))
        time.sleep(fault.seconds)
        service.clock.set_wrong(0)
        return True

    return step


def _cut_before(fault: Fault, service: Service) -> bool:
    return service.proxy_for(fault.size).cut_before(_TRAFFIC)


def _cut_after(fault: Fault, service: Service) -> bool:
    return service.proxy_for(fault.size).cut_after(_TRAFFIC)


def _cut_all(fault: Fault, service: Service) -> bool:
    return service.proxy_for(fault.size).cut_all()


def _vanish(fault: Fault, service: Service) -> bool:
    return service.proxy_for(fault.size).vanish(fault.seconds)


KINDS: dict[str, Callable[[Fault, Service], bool]] = {
    "kill gateway": _kill_parts("gateway"),
    "kill pipeline": _kill_parts("pipeline"),
    "kill both": _kill_parts("gateway", "pipeline"),
    "kill workers": _kill_workers,
    "kill machine": _kill_machine,
    "stop gateway": _stop("gateway"),
    "stop pipeline": _stop("pipeline"),
    "fill disk": _fill_disk,
    "clock back": _set_clock(lambda fault: -1 - 60 * fault.size),
    "clock ahead": _set_clock(lambda fault: 1 + 30 * fault.size),
    "clock leaps": _set_clock(lambda fault: 700 + 1000 * fault.size),
    "cut before": _cut_before,
    "cut after": _cut_after,
    "cut all": _cut_all,
    "vanish": _vanish,
}

OFTEN = {
    "kill gateway": 3,
    "kill pipeline": 2,
    "kill both": 1,
    "kill workers": 2,
    "kill machine": 1,
    "stop gateway": 1,
    "stop pipeline": 1,
    "fill disk": 1,
    "clock back": 2,
    "clock ahead": 1,
    "clock leaps": 1,
    "cut before": 3,
    "cut after": 4,
    "cut all": 1,
    "vanish": 2,
}
"""The number of faults of each kind in a round. The kinds that leave the most outcomes unknown come most often."""
