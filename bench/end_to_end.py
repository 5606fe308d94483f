"""`python -m bench.end_to_end`: how many messages a second go all the way, from the send to the completion.

Runs a real `oncebus serve`, and clients that send batches of 100 as fast as they are accepted. Measures, in turn:

- processed: nobody receives; the rate at which messages are accepted, processed by Spark and put into the store;
- at the same time: four connections receive and complete while others send; the rate of completions, from the first
  send to the last completion.

Prints every round with the CPU time of each process. BENCH_ROUNDS (3) and BENCH_SECONDS of sending (5) change what is
measured.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.noise import measure, verdict
from bench.served import PATIENCE, QUEUE, Served, served, since
from oncebus.model.access import make_token

ROOT = Path(__file__).parent.parent
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "5"))
SEND = ("send", "1", "4", "100", "0")
LOOK_SECONDS = 0.05


class Counts:
    """The counters of a broker's queue, from its metrics."""

    def __init__(self, running: Served, port: int) -> None:
        parts = dict(part.split("=", 1) for part in running.string.split(";"))
        url = f"http://127.0.0.1:{port}"
        until = (time.time_ns() // 1000) + 3_600_000_000
        token = make_token(f"{url}/", parts["SharedAccessKeyName"], parts["SharedAccessKey"], until)
        self._request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": token})

    def new(self) -> int:
        """The number of messages that have come out of the pipeline."""
        start = f'oncebus_messages_new_total{{entity="{QUEUE}"'
        with urllib.request.urlopen(self._request) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(start))


def start(running: Served, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.amqp_load", *words]
    return subprocess.Popen(command, cwd=ROOT, env=running.environment, stdout=subprocess.PIPE, text=True)


def result_of(load: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = load.communicate(timeout=2 * PATIENCE)
    found: dict[str, Any] = json.loads(output)
    return found


def processed(running: Served, counts: Counts) -> tuple[int, float]:
    """Send, and wait until everything is in the store. Return the messages and the seconds."""
    before, began = counts.new(), time.perf_counter()
    sent = result_of(start(running, *SEND, str(SECONDS)))["messages"]
    while counts.new() < before + sent:
        assert time.perf_counter() < began + PATIENCE, "the pipeline does not catch up"
        time.sleep(LOOK_SECONDS)
    return sent, time.perf_counter() - began


def at_the_same_time(running: Served) -> tuple[int, float]:
    """Send and receive together. Return the messages, and the seconds until the last one was completed."""
    receiving = start(running, "receive", "4", "500", str(6 * SECONDS))
    sent = result_of(start(running, *SEND, str(SECONDS)))["messages"]
    came = result_of(receiving)
    assert came["messages"] == sent, f"{came['messages']} of {sent} messages came in {6 * SECONDS:.0f} s"
    return sent, came["seconds"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def main() -> None:
    noises = []
    port = free_port()
    with served(None, "--http-port", str(port)) as running:
        counts = Counts(running, port)
        for at in range(ROUNDS + 1):
            noises.append(measure())
            for name in ("processed", "at the same time"):
                before = running.cpu()
                began = time.perf_counter()
                messages, seconds = processed(running, counts) if name == "processed" else at_the_same_time(running)
                passed = time.perf_counter() - began
                used = since(before, running.cpu())
                if name == "processed":
                    result_of(start(running, "drain", "4", "500", str(messages)))
                shares = ", ".join(f"{role} {100 * cpu / passed:.0f}" for role, cpu in used.items())
                label = f"round {at}" if at else "warm-up"
                print(f"{label:8} {name:16} {messages / seconds:9,.0f}/s  % of a core: {shares}", flush=True)
    print(verdict(noises))


if __name__ == "__main__":
    main()
