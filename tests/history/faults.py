"""What goes wrong in a run: a plan of faults, a function of the seed alone, and how each is done and undone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from serve.clients import everything_below
from serve.programs import until

from .service import Service

_PATIENCE = 90.0
_SPARK_STARTS = 45.0
_TRAFFIC = 5.0
"""How long a cut waits for something to cut."""


@dataclass(frozen=True)
class Fault:
    """`kind` is one of `KINDS`. It lasts `seconds`, if it lasts; `size` is 0 to 1; `pause` comes before it."""

    kind: str
    seconds: float
    size: float
    pause: float


def plan(seed: int, asked: str) -> list[Fault]:
    """The faults of a run. `asked` is how many, or their kinds with commas between them."""
    chance = random.Random(f"{seed} faults")
    if asked.isdigit():
        names: list[str] = []
        while len(names) < int(asked):
            # All kinds come before any comes again.
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
    """Let the pause pass. Most faults wait first until the gateway answers again after the one before.

    While nothing works, nothing can go wrong.
    """
    if fault.size < 0.8:
        until(service.http.is_answered, "the gateway answers", limit=_PATIENCE)
    time.sleep(fault.pause)


def inject(fault: Fault, service: Service) -> bool:
    """Do it, and undo what can be undone. False where there was nothing to be hit: no request came, no process ran."""
    return KINDS[fault.kind](fault, service)


def _kill(pids: Sequence[int]) -> bool:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _part(service: Service, name: str) -> list[int]:
    """The process of a part, if it runs."""
    try:
        return [service.running.child(name)]
    except (AssertionError, OSError):
        # It was killed a moment ago and is not back yet.
        return []


def _whole_part(service: Service, name: str) -> list[int]:
    return [each for pid in _part(service, name) for each in (pid, *everything_below(pid))]


def _kill_parts(*names: str) -> Callable[[Fault, Service], bool]:
    def kill(fault: Fault, service: Service) -> bool:
        """With all that they have started, or alone: then the supervisor has to clean up."""
        find = _part if fault.size < 0.5 else _whole_part
        return _kill([pid for name in names for pid in find(service, name)])

    return kill


def _kill_workers(fault: Fault, service: Service) -> bool:
    """Spark's Python workers, or the daemon that forks them too. They may have to come first."""
    deadline = time.monotonic() + _SPARK_STARTS
    while time.monotonic() < deadline:
        found = [pid for pid in _whole_part(service, "pipeline") if "pyspark.daemon" in _command(pid)]
        # The first is the daemon: it stands above the workers.
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
    """Everything at once. Then it is started again."""
    service.restart()
    return True


def _fill_disk(fault: Fault, service: Service) -> bool:
    service.disk.fill()
    time.sleep(fault.seconds)
    service.disk.make_room()
    return True


def _set_clock(seconds: Callable[[Fault], float]) -> Callable[[Fault, Service], bool]:
    """Set the clock of the whole service wrong, and right again. A gateway that starts meanwhile would believe it."""

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
    "clock back": 1,
    "clock ahead": 1,
    "clock leaps": 1,
    "cut before": 3,
    "cut after": 4,
    "cut all": 1,
}
"""How often each kind comes in a round. Those that leave most open come most often."""
