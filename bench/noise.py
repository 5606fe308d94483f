"""How fast the machine is at the moment: a fixed loop and a few fsyncs, to be measured before and after each round.

If the loops of a run differ by more than the contenders do, the run says nothing.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass

from bench.figures import spread

STEPS = 2_000_000
SYNCS = 20


@dataclass(frozen=True, slots=True)
class Noise:
    """Milliseconds of the loop, the share of them in which it had a core, and the median milliseconds of an fsync."""

    loop: float
    core: float
    sync: float


def measure() -> Noise:
    """Run the loop and the fsyncs in this process, a third of a second in all on an idle machine."""
    began, cpu = time.perf_counter(), time.process_time()
    total = 0
    for step in range(STEPS):
        total += step & 7
    passed, used = time.perf_counter() - began, time.process_time() - cpu
    return Noise(1e3 * passed, min(used / passed, 1.0), 1e3 * statistics.median(_syncs()))


def _syncs() -> Iterable[float]:
    with tempfile.TemporaryFile(dir=os.environ.get("BENCH_WORK"), buffering=0) as file:
        for _ in range(SYNCS):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            yield time.perf_counter() - began


def verdict(noises: list[Noise]) -> str:
    """Return a line about all measurements of a run."""
    loop, core, sync = (spread([getattr(each, name) for each in noises]) for name in ("loop", "core", "sync"))
    return (
        f"The machine: the fixed loop took {loop.median:.0f} ms ({loop.least:.0f} to {loop.most:.0f}: the slowest "
        f"{loop.most / loop.least:.2f} times the fastest), had a core for {core.least:.0%} of its time or more; "
        f"an fsync took {sync.median:.2f} ms ({sync.least:.2f} to {sync.most:.2f})."
    )
