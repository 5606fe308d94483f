"""Runs `make bench`: every contender in its own process, on the same input, in turn. Reports medians of several rounds.

Writes docs/bench/operator.json and docs/bench/operator.svg, and prints a table. BENCH_ROUNDS is the number of rounds.
BENCH_SCENARIOS and BENCH_CONTENDERS are comma-separated selections; the other results are kept. BENCH_WORK is the
folder for inputs: it needs 20 GB, and existing inputs are used again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from bench.generate import START_MICROSECONDS, generate
from bench.report import print_table, write_plot

RESULTS = Path(__file__).parent.parent / "docs" / "bench"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
TIME_LIMIT_SECONDS = 1800
WEEK = "7 days"


@dataclass(frozen=True)
class Scenario:
    """One measurement. `remembered` is the number of ids in the window before the first batch."""

    name: str
    contenders: tuple[str, ...]
    rows: int = 4_000_000
    batch: int = 200_000
    duplicates: float = 0.1
    remembered: int = 0


SCENARIOS = [
    Scenario("main", ("floor", "oncebus", "rocksdb", "memory")),
    Scenario("1M ids", ("oncebus",), remembered=1_000_000),
    Scenario("20M ids", ("oncebus", "rocksdb"), remembered=20_000_000, rows=2_000_000),
    Scenario("100M ids", ("oncebus",), remembered=100_000_000),
    Scenario("batches of 20k", ("floor", "oncebus", "rocksdb"), batch=20_000, rows=600_000),
    Scenario("batches of 1M", ("floor", "oncebus", "rocksdb"), batch=1_000_000, rows=6_000_000),
    Scenario("no duplicates", ("oncebus", "rocksdb"), duplicates=0.0),
    Scenario("half duplicates", ("oncebus", "rocksdb"), duplicates=0.5),
]


class Bench:
    def __init__(self, work: Path) -> None:
        self.work = work
        self.warm_up = self._input(Scenario("warm-up", (), rows=2_000_000))

    def _input(self, scenario: Scenario) -> Path:
        folder = self.work / f"in-{scenario.rows}-{scenario.batch}-{scenario.duplicates}"
        if not folder.exists():
            generate(folder, rows=scenario.rows, batch=scenario.batch, duplicates=scenario.duplicates)
        return folder

    def _ledger(self, ids: int) -> Path:
        folder = self.work / f"ledger-{ids}"
        if not folder.exists():
            command = [sys.executable, "-m", "bench.fill", str(folder), str(ids // 2)]
            given = [str(START_MICROSECONDS), "message_id string"]
            parts = [subprocess.Popen([*command, str(part), *given]) for part in range(2)]
            assert all(part.wait() == 0 for part in parts), "filling a ledger failed"
        return folder

    def _preloaded(self, scenario: Scenario) -> tuple[Path, Path]:
        """Return a source and a checkpoint of Spark's own operator that already remembers the ids."""
        source, prepared = self.work / f"source-{scenario.remembered}", self.work / f"state-{scenario.remembered}"
        if not prepared.exists():
            generate(source, rows=scenario.remembered, batch=2_000_000, duplicates=0, body=1)
            self._run("rocksdb", source, prepared, limit=7200)
            generate(
                source,
                rows=scenario.rows,
                batch=scenario.batch,
                duplicates=scenario.duplicates,
                first=scenario.remembered,
            )
        return source, prepared

    def _run(self, contender: str, source: Path, work: Path, limit: int = TIME_LIMIT_SECONDS) -> dict[str, Any]:
        answer = work.with_suffix(".json")
        answer.unlink(missing_ok=True)
        command = [sys.executable, "-m", "bench.contender", contender]
        command += [str(self.warm_up), str(source), str(work), WEEK, str(answer)]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
            )
            try:
                process.wait(limit)
                if not answer.exists():
                    errors.seek(0)
                    raise RuntimeError(f"{contender} failed:\n{errors.read().decode()[-3000:]}")
            finally:
                # If the JVM hangs at its end, it outlives the driver.
                os.killpg(process.pid, signal.SIGKILL)
        result: dict[str, Any] = json.loads(answer.read_text())
        return result

    def measure(self, scenario: Scenario, contender: str) -> dict[str, Any]:
        run = self.work / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        source = self._input(scenario)
        if scenario.remembered and contender == "oncebus":
            # Runs never change, so links are as good as copies.
            shutil.copytree(self._ledger(scenario.remembered), run / "ledger", copy_function=os.link)
        elif scenario.remembered:
            source, prepared = self._preloaded(scenario)
            shutil.copytree(prepared / "checkpoint", run / "checkpoint")
        return self._run(contender, source, run)


def kept(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return these results, and the previous ones of scenarios that were not measured this time."""
    target = RESULTS / "operator.json"
    before = json.loads(target.read_text())["results"] if target.exists() else []
    found = {(result["scenario"], result["contender"]): result for result in [*before, *results]}
    order = [(scenario.name, contender) for scenario in SCENARIOS for contender in scenario.contenders]
    return [found[each] for each in order if each in found]


def main() -> None:
    chosen, only = os.environ.get("BENCH_SCENARIOS"), os.environ.get("BENCH_CONTENDERS")
    scenarios = [scenario for scenario in SCENARIOS if chosen is None or scenario.name in chosen.split(",")]
    given = os.environ.get("BENCH_WORK")
    work = Path(given) if given else Path(tempfile.mkdtemp(prefix="oncebus-bench-"))
    work.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    try:
        bench = Bench(work)
        for scenario in scenarios:
            contenders = [name for name in scenario.contenders if only is None or name in only.split(",")]
            rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
            for at in range(ROUNDS):
                for contender in contenders if at % 2 == 0 else contenders[::-1]:
                    begin = time.monotonic()
                    measured = bench.measure(scenario, contender)
                    rounds[contender].append(measured)
                    print(
                        f"{scenario.name:16} round {at + 1} {contender:8} {measured['rows_per_second']:10,.0f} rows/s "
                        f"({time.monotonic() - begin:.0f} s)",
                        flush=True,
                    )
            for contender, runs in rounds.items():
                result: dict[str, Any] = {"scenario": scenario.name, "contender": contender, "rounds": len(runs)}
                result |= {
                    "remembered": scenario.remembered,
                    "batch": scenario.batch,
                    "duplicates": scenario.duplicates,
                }
                for figure in (
                    "rows_per_second",
                    "mean_rows_per_second",
                    "ids",
                    "ledger_bytes",
                    "runs",
                    "worker_bytes",
                ):
                    if figure in runs[0]:
                        result[figure] = statistics.median(run[figure] for run in runs)
                result["every_round"] = [round(run["rows_per_second"]) for run in runs]
                results.append(result)
    finally:
        if given is None:
            shutil.rmtree(work, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = kept(results)
    machine = {"python": platform.python_version(), "spark": pyspark.__version__, "cores": os.cpu_count()}
    (RESULTS / "operator.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    print_table(results)
    write_plot(results, RESULTS / "operator.svg")


if __name__ == "__main__":
    main()
