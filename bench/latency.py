"""`python -m bench.latency`: how soon messages arrive, where their time goes, and what an idle broker costs.

Runs a real `oncebus serve` on this machine, and a client that speaks AMQP, each in processes of their own. Measures:

- its start, with and without a class archive, and its stop;
- one message at a time through an idle broker, with the time of each stage;
- a steady rate of messages, with the CPU time of each process;
- the CPU time and the wake-ups of each process while nobody uses the broker;
- one message after a long idle time.

Writes docs/bench/latency.json and prints tables. BENCH_COUNT, BENCH_RATE, BENCH_SECONDS, BENCH_COST_SECONDS and
BENCH_IDLE_SECONDS change what is measured. BENCH_WORK is the folder for data, ONCEBUS_CACHE the folder of the class
archive. BENCH_PHASES is a list of the phases to measure (start,one,rate,cost,idle); then nothing is written.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.served import Cost, Served, served
from bench.stages import points_in, stages_of, summary

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "bench" / "latency.json"
ALL_PHASES = ("start", "one", "rate", "cost", "idle")
PHASES = os.environ.get("BENCH_PHASES", "")
COUNT = int(os.environ.get("BENCH_COUNT", "200"))
RATE = int(os.environ.get("BENCH_RATE", "2000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
COST_SECONDS = float(os.environ.get("BENCH_COST_SECONDS", "60"))
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "600"))
WARM_UP = ("100", "0.02")
WARM_UP_SECONDS = 10.0
PAUSE = 0.1
SETTLE_SECONDS = 20.0

Percentiles = dict[str, float]
Shares = dict[str, list[float]]


def main() -> None:
    wanted = PHASES.split(",") if PHASES else list(ALL_PHASES)
    result: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version()}
    if "start" in wanted:
        result["starts"] = starts()
    if wanted != ["start"]:
        result |= measured(wanted)
    if not PHASES:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print_tables(result)


def starts() -> dict[str, dict[str, float]]:
    """Seconds of a start and a stop, with the class archive if there is one, and without."""
    with served() as usual:
        pass
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-") as empty, served({"ONCEBUS_CACHE": empty}) as slow:
        pass
    return {
        name: {event: round(seconds, 2) for event, seconds in running.seconds.items()}
        for name, running in (("with class archive", usual), ("without", slow))
    }


def measured(wanted: list[str]) -> dict[str, Any]:
    """The figures of one broker. Tracing it costs far less than a millisecond per message."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="oncebus-trace-") as trace:
        path = os.pathsep.join(filter(None, [str(HERE / "tracing"), os.environ.get("PYTHONPATH")]))
        with served({"BENCH_TRACE": trace, "PYTHONPATH": path}) as running:
            times_of(running, "one", *WARM_UP)
            if "one" in wanted:
                times = times_of(running, "one", str(COUNT), str(PAUSE))
                result["one message"] = percentiles(times)
                stages = stages_of(points_in(Path(trace)), times["sent"], times["arrived"])
                result["stages"] = [[name, round(p50, 2), round(p99, 2)] for name, p50, p99 in summary(stages)]
            if "rate" in wanted:
                times_of(running, "rate", str(RATE), str(WARM_UP_SECONDS))
                with running.costs() as costs:
                    times = times_of(running, "rate", str(RATE), str(SECONDS))
                result["at a rate"] = {"messages/s": RATE, **percentiles(times), "cost": shares(costs)}
            if "cost" in wanted:
                # A new broker warms up once, as soon as nothing comes.
                time.sleep(SETTLE_SECONDS)
                with running.costs() as costs:
                    time.sleep(COST_SECONDS)
                result["idle cost"] = shares(costs)
            if "idle" in wanted and IDLE_SECONDS:
                time.sleep(IDLE_SECONDS)
                result["after idle"] = {"seconds": IDLE_SECONDS, **percentiles(times_of(running, "one", "1", "0"))}
    return result


def times_of(running: Served, kind: str, *words: str) -> dict[str, list[float]]:
    """What `bench.amqp_timed` measures."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.amqp_timed", kind, *words],
        cwd=HERE.parent,
        env=running.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def percentiles(found: dict[str, list[float]]) -> Percentiles:
    """Milliseconds from the send to the receiver, and to the answer that the message is accepted."""
    result = {}
    for name, end in (("", "arrived"), ("accepted ", "accepted")):
        times = sorted(1e3 * (to - since) for since, to in zip(found["sent"], found[end], strict=True))
        for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("worst", 1.0)):
            result[name + label] = round(times[min(int(len(times) * share), len(times) - 1)], 1)
    return result


def shares(costs: dict[str, Cost]) -> Shares:
    """Each process with its share of a core in percent, and its wake-ups per second."""
    everything = {**dict(sorted(costs.items())), "all": sum(costs.values(), start=Cost())}
    return {name: [round(100 * cost.cpu, 2), round(cost.wakes)] for name, cost in everything.items()}


def print_tables(result: dict[str, Any]) -> None:
    console = Console(width=120)
    if "starts" in result:
        table = Table("seconds until", *result["starts"])
        for event, words in (("open", "it accepts messages"), ("ready", "it delivers"), ("stop", "it has stopped")):
            table.add_row(words, *(f"{each[event]:.2f}" for each in result["starts"].values()))
        console.print(table)
    rows = {name: result[name] for name in ("one message", "at a rate", "after idle") if name in result}
    if rows:
        labels = ("p50", "p90", "p99", "worst", "accepted p50", "accepted p99")
        table = Table("milliseconds", *labels)
        for name, figures in rows.items():
            table.add_row(name, *(f"{figures[label]:,.1f}" for label in labels))
        console.print(table)
    if "stages" in result:
        table = Table("until", "p50 ms", "p99 ms", title="One message: from stage to stage")
        for name, p50, p99 in result["stages"]:
            table.add_row(name, f"{p50:.2f}", f"{p99:.2f}")
        console.print(table)
    for title, figures in (
        ("idle", result.get("idle cost")),
        (f"{RATE} messages/s", result.get("at a rate", {}).get("cost")),
    ):
        if figures:
            table = Table("process", "% of a core", "wake-ups/s", title=f"Cost, {title}")
            for name, (share, wakes) in figures.items():
                table.add_row(name, f"{share:.2f}", f"{wakes:,.0f}")
            console.print(table)


if __name__ == "__main__":
    main()
