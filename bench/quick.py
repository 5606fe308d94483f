"""Runs `make bench-quick`: the few figures that matter, beside rivals, in less than five minutes on a quiet machine.

First the brokers: a real `oncebus serve`, Apache Artemis and NATS JetStream, as far as they are installed. All run at
the same time, but only one of them has work; another one begins in each round. Then, in the same way, the operator
beside its floor and Spark's own. A fixed loop before and after each round says how steady the machine was.

Prints medians with their range over the rounds, and ratios within the same round, also with their range. CPU seconds
are those of the brokers' processes, not of the clients. Writes build/bench-quick.json.

BENCH_ROUNDS (3), BENCH_SECONDS for each rate (1.5), BENCH_COUNT of single messages (50), BENCH_RATE (2000), BENCH_IDS
that Artemis remembers (1000000) and BENCH_ROWS of the operator (500000) change what is measured. BENCH_CONTENDERS is a
list: oncebus,Artemis,NATS,operator. BENCH_WORK is the folder for data.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench import artemis, nats
from bench.figures import Figures, turns
from bench.noise import Noise, measure, verdict
from bench.quick_brokers import ArtemisBroker, MeasuredBroker, NatsBroker, OncebusBroker
from bench.quick_operator import CONTENDERS, operators
from bench.served import resident_bytes, served, since

TARGET = Path(__file__).parent.parent / "build" / "bench-quick.json"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
IDS = int(os.environ.get("BENCH_IDS", "1000000"))
ROWS = int(os.environ.get("BENCH_ROWS", "500000"))
WANTED = os.environ.get("BENCH_CONTENDERS", "oncebus,Artemis,NATS,operator").split(",")
IDLE_SECONDS = 4.0


def brokers_in(stack: contextlib.ExitStack) -> dict[str, MeasuredBroker]:
    """Start all brokers that are wanted and installed. They stop with the stack."""
    found: dict[str, MeasuredBroker] = {}
    if "oncebus" in WANTED:
        found["oncebus"] = OncebusBroker(stack.enter_context(served()))
    for name, why in (("Artemis", artemis.missing()), ("NATS", nats.missing())):
        if name in WANTED and why is not None:
            print(why, file=sys.stderr)
        elif name == "Artemis" and name in WANTED:
            found[name] = ArtemisBroker(stack.enter_context(artemis.artemis(IDS)))
        elif name in WANTED:
            found[name] = NatsBroker(stack.enter_context(nats.nats_server()))
    return found


def measured_brokers(figures: Figures, noises: list[Noise]) -> list[str]:
    """Measure the brokers in all rounds, and return their names."""
    with contextlib.ExitStack() as stack:
        brokers = brokers_in(stack)
        for name, broker in brokers.items():
            say(f"{name}: warming up")
            broker.warm_up()
        for at in range(ROUNDS if brokers else 0):
            noises.append(measure())
            for name in turns(list(brokers), at):
                say(f"round {at + 1}: {name}")
                for figure, value in brokers[name].figures():
                    figures.note(figure, name, at, value)
            before = {name: broker.served.cpu() for name, broker in brokers.items()}
            time.sleep(IDLE_SECONDS)
            for name, broker in brokers.items():
                for role, used in since(before[name], broker.served.cpu()).items():
                    figures.note(f"idle, % of a core: {role}", name, at, 100 * used / IDLE_SECONDS)
                figures.note("resident memory, MB", name, at, resident_bytes(broker.served.process.pid) / 1e6)
            noises.append(measure())
    for name, broker in brokers.items():
        for event, seconds in broker.served.seconds.items():
            figures.note(f"seconds until it is {EVENTS[event]}", name, 0, seconds)
    return list(brokers)


EVENTS = {"open": "open for messages", "ready": "ready", "stop": "stopped"}


def measured_operator(figures: Figures, noises: list[Noise]) -> None:
    with tempfile.TemporaryDirectory(
        prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK"), ignore_cleanup_errors=True
    ) as work:
        say("operator: warming up")
        with operators(Path(work), ROWS) as running:
            for at in range(ROUNDS):
                noises.append(measure())
                for name in turns(CONTENDERS, at):
                    say(f"round {at + 1}: operator, {name}")
                    for figure, value in running[name].figures(at):
                        figures.note(figure, name, at, value)
                noises.append(measure())


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> None:
    began = time.monotonic()
    brokers, operator = Figures(), Figures()
    noises: list[Noise] = []
    names = measured_brokers(brokers, noises)
    if "operator" in WANTED:
        measured_operator(operator, noises)
    console = Console(width=180)
    rounds = f"median (range), rounds: {ROUNDS}"
    if names:
        console.print(brokers.table(f"Brokers, {rounds}", names[0], names))
    if operator.values:
        console.print(operator.table(f"Operator, {rounds}", CONTENDERS[0], CONTENDERS))
    if noises:
        console.print(verdict(noises), highlight=False)
    console.print(f"This took {time.monotonic() - began:.0f} s.", highlight=False)
    TARGET.parent.mkdir(exist_ok=True)
    result = {
        "cores": os.cpu_count(), "python": platform.python_version(), "brokers": brokers.values,
        "operator": operator.values, "noise": [asdict(each) for each in noises],
    }  # fmt: skip
    TARGET.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
