"""Measures what the model cannot know: CPU time of a listing, a lookup, a merge, and bytes per id, on this machine."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.scale_counted import SECOND, START, WRITER, memory_folder
from oncebus.detection import NO_HORIZON, Rows, judge
from oncebus.ledger import Ledger
from oncebus.ledger.merging import FAN, FULL, merge
from oncebus.ledger.names import Position, RunName, visible_runs
from oncebus.ledger.run import Entries, RecallFrom, Run, encode_run

ROWS = 100_000
FILES = 2_000
REPEATED = 5
LARGEST = FULL - 1
"""The entries of the runs in the largest merge: one more, and they would be full."""


def cpu_seconds(work: Callable[[], object], times: int = REPEATED) -> float:
    """Return the least CPU time of several calls, after one to warm up."""
    work()
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def some_entries(count: int, seed: int) -> Entries:
    random = np.random.default_rng(seed)
    high, low = (random.integers(0, 2**64, count, dtype=np.uint64) for _ in range(2))
    order = np.argsort(high)
    numbers = np.arange(count)
    same = np.full(count, 86_400 * SECOND)
    return Entries.of(high[order], low[order], START + numbers, numbers, same, same)


def some_run(count: int, seed: int) -> Run:
    return Run(f"run {seed}", memoryview(b"".join(encode_run(some_entries(count, seed), START))))


def bytes_per_id() -> float:
    count = 1_000_000
    return sum(len(piece) for piece in encode_run(some_entries(count, 1), START)) / count


def judged(runs: int) -> float:
    """Return the CPU time to judge new rows against so many runs of a million ids each. The files are in memory."""
    opened = [some_run(1_000_000, seed) for seed in range(runs)]
    random = np.random.default_rng(99)
    high, low = (random.integers(0, 2**64, ROWS, dtype=np.uint64) for _ in range(2))
    numbers, same = np.arange(ROWS), np.full(ROWS, 86_400 * SECOND)
    rows = Rows(high, low, np.ones(ROWS, np.bool_), START + numbers, same, same, numbers, numbers.__getitem__)
    return cpu_seconds(lambda: judge(rows, RecallFrom(opened), NO_HORIZON))


def merged(size: int) -> float:
    """Return the CPU time to merge eight runs of this size, and to encode the result."""
    runs = [some_entries(size, seed) for seed in range(FAN)]
    return cpu_seconds(lambda: encode_run(merge(runs, NO_HORIZON), START), times=3)


def listed() -> float:
    """Return the CPU time of a task to list a ledger and to choose the runs that it sees, per file."""
    with memory_folder() as folder:
        ledger = Ledger.open(folder)
        ledger.describe_or_check(["id string"], has_secret=True)
        generation = ledger.join(WRITER, 0)
        for at in range(FILES):
            batch, part = divmod(at, 32)
            first, last = Position(1, 8 * batch), Position(1, 8 * batch + 7)
            name = RunName(first, last, part, 32, 0, START + batch, generation.token)
            with open(os.path.join(folder, name.file_name()), "wb"):
                pass

        def work() -> None:
            listing = ledger.listing()
            assert len(visible_runs(listing.runs, [generation], Position(1, 1 << 30))) == FILES

        return cpu_seconds(work) / FILES


def largest_merge() -> tuple[float, int]:
    """Return the CPU time of the largest merge, and the most memory that its process held."""
    program = "import bench.scale_measured as it; print(it.merged(it.LARGEST), it.peak_bytes())"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    return float(answer[0]), int(answer[1])


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure() -> dict[str, Any]:
    """Return all measurements, with their units in their names."""
    few, many = judged(4), judged(36)
    largest, peak = largest_merge()
    return {
        "bytes_per_id": bytes_per_id(),
        "judge_cpu_seconds_per_million_rows": few / ROWS * 1e6,
        "lookup_nanoseconds_per_row_and_run": (many - few) / 32 / ROWS * 1e9,
        "merge_cpu_seconds_per_million_ids": merged(125_000),
        "largest_merge_cpu_seconds": largest,
        "largest_merge_peak_bytes": peak,
        "listing_cpu_microseconds_per_file": listed() * 1e6,
    }
