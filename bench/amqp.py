"""Runs `python -m bench.amqp`: sends and receives over AMQP, with our own load client and with the official clients.

The gateway is a process over a new data folder, with one queue that detects duplicates. Each client is another process.
Each figure comes with the CPU time that a message took in the gateway and in the client: if one of them is close to the
whole time, that one is the bottleneck. Sends count when they are durable. The pipeline on Spark does not run, because
it would compete for the cores, unless BENCH_PIPELINE=1; messages to receive went through detection and routing before,
in the process of the gateway.

Writes docs/bench/amqp.json and prints a table. BENCH_SECONDS is the time for each figure, BENCH_WORK the folder for the
data. With BENCH_ONLY, measures only figures whose name starts with it ("raw", "Python aio"), and writes nothing. Needs
azure-servicebus. Skips the JavaScript client if Node or npm is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "bench" / "amqp.json"
PACKAGES = HERE.parent / "tests" / "clients" / "javascript"
"""The versions that the tests run against."""
SECONDS = os.environ.get("BENCH_SECONDS", "4")
ONLY = os.environ.get("BENCH_ONLY", "")
WITH_SPARK = os.environ.get("BENCH_PIPELINE") == "1"
FILLED = int(os.environ.get("BENCH_FILLED", "150000"))
QUEUE = "bench"
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Figure:
    """The result of one client. CPU times are in microseconds per message, shares are of one core."""

    name: str
    messages: int
    per_second: float
    gateway_cpu: float
    client_cpu: float
    gateway_share: float
    client_share: float


@dataclass(frozen=True, slots=True)
class Gateway:
    pid: int
    string: str

    def cpu(self) -> float:
        """Return the seconds of CPU that the process has used, with all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def python(module: str, *words: str) -> list[str]:
    return [sys.executable, "-m", f"bench.{module}", *words, SECONDS]


SENDING = {
    "raw, batches of 100, 4 links": python("amqp_load", "send", "1", "4", "100", "0"),
    "raw, 32 awaiting senders": python("amqp_load", "send", "32", "1", "1", "1"),
    "raw, 1 awaiting sender": python("amqp_load", "send", "1", "1", "1", "1"),
    "Python, single": python("amqp_python", "sync", "single"),
    "Python, batches of 100": python("amqp_python", "sync", "batch"),
    "Python aio, single": python("amqp_python", "aio", "single"),
    "Python aio, batches of 100": python("amqp_python", "aio", "batch"),
    "JavaScript, single": ["node", "load.mjs", "single", SECONDS],
    "JavaScript, batches of 100": ["node", "load.mjs", "batch", SECONDS],
}
RECEIVING = {
    "raw, receive and complete, 4 receivers": python("amqp_load", "receive", "4", "500"),
    "Python, receive and complete": python("amqp_python", "sync", "receive"),
    "Python aio, receive and complete": python("amqp_python", "aio", "receive"),
    "JavaScript, receive and complete": ["node", "load.mjs", "receive", SECONDS],
}


@contextlib.contextmanager
def gateway(filled: int) -> Iterator[Gateway]:
    """Run a gateway whose queue holds `filled` messages."""
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK")) as scratch:
        command = [sys.executable, "-m", "bench.amqp_gateway", str(Path(scratch) / "data"), str(filled)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                assert line, "the gateway did not start"
                yield Gateway(**json.loads(line))
                process.stdin.close()
                process.wait(PATIENCE)
            finally:
                process.kill()


@contextlib.contextmanager
def javascript() -> Iterator[Path | None]:
    """Yield a folder with the JavaScript client and its load script; None without Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("Node or npm was not found: skipping the JavaScript client.", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-") as name:
        for file in (PACKAGES / "package.json", PACKAGES / "package-lock.json", HERE / "javascript" / "load.mjs"):
            shutil.copy(file, name)
        words = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--silent"]
        subprocess.run(words, cwd=name, check=True)
        yield Path(name)


def measured(name: str, command: list[str], served: Gateway, folder: Path) -> Figure:
    before = served.cpu()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "SERVICEBUS_CONNECTION_STRING": served.string, "QUEUE": QUEUE},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    used = served.cpu() - before
    found = json.loads(done.stdout)
    messages, seconds = found["messages"], found["seconds"]
    assert messages, f"{name}: no message came through"
    figure = Figure(
        name=name,
        messages=messages,
        per_second=round(messages / seconds, 1),
        gateway_cpu=round(used / messages * 1e6, 1),
        client_cpu=round(found["cpu"] / messages * 1e6, 1),
        gateway_share=round(used / seconds, 2),
        client_share=round(found["cpu"] / seconds, 2),
    )
    print(f"  {name}: {figure.per_second:,.0f}/s", file=sys.stderr, flush=True)
    return figure


def figures_of(commands: dict[str, list[str]], filled: int, scripts: Path | None) -> list[Figure]:
    """Run these commands against one gateway, one after the other, and return their figures."""
    wanted = {
        name: command
        for name, command in commands.items()
        if name.startswith(ONLY) and (command[0] != "node" or scripts is not None)
    }
    if not wanted:
        return []
    with gateway(filled) as served:
        return [
            measured(name, command, served, scripts if scripts and command[0] == "node" else HERE.parent)
            for name, command in wanted.items()
        ]


def table_of(figures: list[Figure]) -> Table:
    table = Table(
        "",
        "messages/s",
        "gateway µs CPU/message",
        "client µs CPU/message",
        "gateway, cores",
        "client, cores",
        title=f"AMQP, bodies of 200 bytes, detection on, {'with' if WITH_SPARK else 'without'} Spark beside the sends",
        caption="Received messages went through detection and routing in the gateway's process before.",
    )
    for each in figures:
        table.add_row(
            each.name,
            f"{each.per_second:,.0f}",
            f"{each.gateway_cpu:,.1f}",
            f"{each.client_cpu:,.1f}",
            f"{each.gateway_share:.2f}",
            f"{each.client_share:.2f}",
        )
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def main() -> None:
    needs_node = not ONLY or any(name.startswith(ONLY) for name in (*SENDING, *RECEIVING) if "JavaScript" in name)
    with javascript() if needs_node else contextlib.nullcontext() as scripts:
        figures = figures_of(SENDING, 0, scripts) + figures_of(RECEIVING, FILLED, scripts)
    if not ONLY:
        result: dict[str, Any] = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "azure-servicebus": version("azure-servicebus"),
            "@azure/service-bus": json.loads((PACKAGES / "package.json").read_text())["dependencies"][
                "@azure/service-bus"
            ],
            "seconds": float(SECONDS),
            "pipeline_beside_sends": "Spark" if WITH_SPARK else None,
            "received_were_filled_by": "detection and routing in the gateway's process",
            "figures": [asdict(figure) for figure in figures],
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    Console(width=120).print(table_of(figures))


if __name__ == "__main__":
    main()
