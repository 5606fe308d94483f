"""The operator in `make bench-quick`, beside its floor and Spark's own: one process each, which all rounds use.

The first stream of each process runs in a cold Java; its figures are there once. The later ones have batches of several
sizes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.generate import generate
from bench.served import cpu_below, since

CONTENDERS = ("oncebus", "floor", "rocksdb")
WINDOW = "7 days"
BATCH = 100_000
SMALL_BATCHES = (10_000, 1_000)
SMALL_COUNT = 12
MEMORY = "2g"
SKIPPED_BATCHES = 1
ROOT = Path(__file__).parent.parent


class Operator:
    """A contender in its process. Its first stream has ended."""

    def __init__(self, name: str, process: subprocess.Popen[str], sources: dict[int, Path], work: Path) -> None:
        self._name, self._process, self._sources, self._work = name, process, sources, work
        first = self.batches()
        rows = sum(rows for rows, _ in first)
        used = cpu_below(process.pid, "driver")
        self.cold = {
            "rows/s, from a cold JVM": rows / sum(seconds for _, seconds in first),
            "CPU s, from a cold JVM, with Spark's start": sum(used.values()),
        }

    def batches(self) -> list[tuple[int, float]]:
        """Return the rows and seconds of each batch of the next answer."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Other lines are Spark's.
            if line.startswith("["):
                return [(rows, seconds) for rows, seconds in json.loads(line)]
        raise RuntimeError(f"{self._name} ended")

    def figures(self, round_number: int) -> Iterator[tuple[str, float]]:
        """Read each input once more, with a new ledger or state, and yield the figures."""
        if round_number == 0:
            yield from self.cold.items()
        before = cpu_below(self._process.pid, "driver")
        batches = self._run(BATCH)
        used = since(before, cpu_below(self._process.pid, "driver"))
        yield "rows/s", statistics.median(rows / seconds for rows, seconds in batches[SKIPPED_BATCHES:])
        rows = sum(rows for rows, _ in batches)
        for role, cpu in used.items():
            yield f"CPU s per million rows: {role}", cpu / rows * 1e6
        for size in SMALL_BATCHES:
            seconds = [seconds for _, seconds in self._run(size)[SKIPPED_BATCHES:]]
            yield f"ms, a batch of {size:,} rows", 1000 * statistics.median(seconds)

    def _run(self, batch: int) -> list[tuple[int, float]]:
        """Read the input with batches of this size. Return the rows and seconds of each batch."""
        assert self._process.stdin is not None
        work = self._work / f"{self._name}-run"
        self._process.stdin.write(f"{self._sources[batch]} {work}\n")
        self._process.stdin.flush()
        batches = self.batches()
        shutil.rmtree(work, ignore_errors=True)
        return batches


@contextlib.contextmanager
def operators(work: Path, rows: int) -> Iterator[dict[str, Operator]]:
    """Start all contenders, one after the other, and warm them up. They end with the block."""
    sources = {BATCH: work / "in", **{size: work / f"in-{size}" for size in SMALL_BATCHES}}
    for size, source in sources.items():
        generate(source, rows=rows if size == BATCH else size * SMALL_COUNT, batch=size, duplicates=0.1)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((work / "spark.log").open("w"))
        found = {}
        for name in CONTENDERS:
            command = [
                sys.executable,
                "-m",
                "bench.contender",
                name,
                str(sources[BATCH]),
                str(work / f"warm-{name}"),
                WINDOW,
            ]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "BENCH_MEMORY": MEMORY},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            stack.callback(_end, process)
            found[name] = Operator(name, process, sources, work)
        yield found


def _end(process: subprocess.Popen[str]) -> None:
    # Java ends with the driver; if it hangs, it outlives it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
