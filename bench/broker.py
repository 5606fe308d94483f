"""Runs `make bench-broker`: measures the broker object, with the pipeline as a process beside it.

There are three brokers: without detection, with a window of 20 seconds, and with a window of 7 days that already holds
50 million ids. They take turns in each round, while the pipelines of the others are stopped. Then all three idle
together, and one message goes through each. The process of the broker serves HTTP; its clients are a separate process.
If Debian's `nats-server` is installed, JetStream is measured too.

Writes docs/bench/broker.json and .svg, and prints a table. Set BENCH_ROUNDS, BENCH_SECONDS, BENCH_IDS and
BENCH_IDLE_SECONDS to change the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
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
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.sending import Incoming
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.store import Action, Settlement
from oncebus.model.access import Right, make_token
from oncebus.model.access.authorization_rule import fresh_rule
from oncebus.model.entities import Queue
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.gateway import SWITCH_SECONDS
from oncebus.protocols.http import listen, server

RESULTS = Path(__file__).parent.parent / "docs" / "bench" / "broker.json"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
IDS = int(os.environ.get("BENCH_IDS", "50000000"))
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "300"))
RATES = (500, 2_000, 10_000)
SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
WARM_SECONDS = 4 * SECONDS
SHARDS = 2
BODY = b"x" * 200
MODES: dict[str, int | None] = {"off": None, "20 seconds": 20_000_000, "7 days": 7 * 86_400_000_000}
QUEUE = Address("bench")


_HOLE = "x" * 32
_HEAD, _TAIL = amqp.encode_message(amqp.Properties(message_id=_HOLE), None, BODY)
_IDS = itertools.count(uuid.uuid4().int >> 64 << 64)


def message() -> Incoming:
    """Return a message with a new id, as cheaply as possible: we measure the broker, not this."""
    identity = f"{next(_IDS):032x}"
    return Incoming(_HEAD.replace(_HOLE.encode(), identity.encode()), _TAIL, identity)


class Running(NamedTuple):
    """A broker, and the process group of its pipeline."""

    broker: Broker
    group: int

    async def caught_up(self) -> None:
        """Wait until everything that was sent has come out of the pipeline."""
        await self.broker.pipeline.wait_for(self.broker.pipeline.last_commit, 600)

    @contextlib.contextmanager
    def without_others(self, others: Iterable[Running]) -> Iterator[None]:
        """Stop the pipelines of the others for the block: even without work, they poll all the time."""
        held = [other.group for other in others if other is not self]
        for group in held:
            os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            for group in held:
                os.killpg(group, signal.SIGCONT)


@contextlib.asynccontextmanager
async def running(mode: str, filled: Path | None) -> AsyncIterator[Running]:
    """Run a broker with one queue over a new data folder, with a warm pipeline."""
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-", ignore_cleanup_errors=True) as scratch:
        folders = Folders(Path(scratch) / "data")
        broker = await Broker.open(Engine.files(folders, SHARDS))
        broker.start()
        window = MODES[mode]
        queue = Queue(name=QUEUE.path, max_size_in_megabytes=5120, lock_duration=300_000_000)
        if window is not None:
            queue = Queue(
                name=QUEUE.path,
                max_size_in_megabytes=5120,
                lock_duration=300_000_000,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window=window,
            )
        if filled is not None:
            shutil.copytree(filled, folders.ledger, copy_function=os.link)
        await broker.change(lambda catalogue, now: catalogue.create(queue, now))
        script = (
            "import sys; from pathlib import Path; from oncebus.engine.folders import Folders; "
            "from oncebus.pipeline.process import run_pipeline; "
            f"run_pipeline(Folders(Path(sys.argv[1])), master='local[2]', shards={SHARDS}, parent={os.getpid()})"
        )
        with (Path(scratch) / "spark.log").open("wb") as log:
            command = [sys.executable, "-c", script, str(folders.data)]
            pipeline = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                for _ in range(20):
                    await broker.send(QUEUE.path, [message()])
                    assert await broker.pipeline.wait_for(broker.pipeline.last_commit, 120), (
                        "the pipeline did not start"
                    )
                await drained(broker)
                yield Running(broker, pipeline.pid)
            finally:
                os.killpg(pipeline.pid, signal.SIGCONT)
                pipeline.terminate()
                pipeline.wait(60)
                await broker.close()


async def sends_per_second(broker: Broker, senders: int, batch: int) -> float:
    """Return the rate of durable sends. Each sender awaits each answer."""
    end = time.perf_counter() + SECONDS
    sent = 0

    async def sender() -> None:
        nonlocal sent
        while time.perf_counter() < end:
            await broker.send(QUEUE.path, [message() for _ in range(batch)])
            sent += batch

    began = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(senders)))
    return sent / (time.perf_counter() - began)


async def drained(broker: Broker, receivers: int = 4) -> float:
    """Receive and complete everything, 100 at a time. Return the messages per second."""
    taken = 0

    async def receiver() -> None:
        nonlocal taken
        while got := await broker.receive(QUEUE, 100):
            await broker.settle(QUEUE, [Settlement(Action.COMPLETE, each.message.token or b"") for each in got])
            taken += len(got)

    began = time.perf_counter()
    await asyncio.gather(*(receiver() for _ in range(receivers)))
    return taken / (time.perf_counter() - began)


async def http_sends_per_second(broker: Broker, senders: int, batch: int) -> float:
    """Return the rate of durable sends over HTTP, from a separate process."""
    rule = fresh_rule("bench", [Right.MANAGE])
    http = server(make_app(broker, namespace_rules=lambda: (rule,)), listen("127.0.0.1", 0))
    await http.start()
    try:
        token = make_token(
            f"http://127.0.0.1:{http.port}/", rule.name, rule.primary_key, broker.clock.now() + 3_600_000_000
        )
        load = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.http_load", str(http.port), QUEUE.path, str(senders), str(batch)),
            *(str(SECONDS), str(len(BODY)), token),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await load.communicate()
        return float(output)
    finally:
        await http.stop()


async def latencies(broker: Broker, rate: int, seconds: float = SECONDS) -> list[float]:
    """Send messages at a steady rate. Return the seconds from each send to its receipt."""
    sent: dict[str, float] = {}
    found: list[float] = []
    is_over = False

    async def receiver() -> None:
        while not is_over or sent:
            got = await broker.receive(QUEUE, 500, wait=1.0)
            now = time.perf_counter()
            found.extend(now - sent.pop(each.message.message_id) for each in got)
            if got:
                await broker.settle(QUEUE, [Settlement(Action.COMPLETE, each.message.token or b"") for each in got])

    async def send(one: Incoming) -> None:
        assert isinstance(one.message_id, str)
        sent[one.message_id] = time.perf_counter()
        await broker.send(QUEUE.path, [one])

    receiving = asyncio.create_task(receiver())
    began, started, pending = time.perf_counter(), 0, set()
    while (passed := time.perf_counter() - began) < seconds:
        while started < passed * rate:
            task = asyncio.create_task(send(message()))
            pending.add(task)
            task.add_done_callback(pending.discard)
            started += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*pending)
    is_over = True
    await receiving
    return found[len(found) // 4 :]


async def single(broker: Broker) -> float:
    """Return the seconds that one message takes through an idle broker."""
    began = time.perf_counter()
    await broker.send(QUEUE.path, [message()])
    got = await broker.receive(QUEUE, 1, wait=60)
    taken = time.perf_counter() - began
    await broker.settle(QUEUE, [Settlement(Action.COMPLETE, each.message.token or b"") for each in got])
    return taken


Figures = dict[str, list[float]]
Work = Callable[[Broker], Awaitable[float]]


async def measured(ledger: Path) -> dict[str, Figures]:
    """Measure all modes, each in its own broker. They take turns, so that a slow minute is slow for all."""
    async with contextlib.AsyncExitStack() as stack:
        brokers = {
            mode: await stack.enter_async_context(running(mode, ledger if mode == "7 days" else None)) for mode in MODES
        }
        found: dict[str, Figures] = {mode: {} for mode in MODES}

        def note(mode: str, name: str, figure: float) -> None:
            found[mode].setdefault(name, []).append(figure)
            print(f"  {mode}: {name}: {shown(figure)}", file=sys.stderr, flush=True)

        order = deque(brokers.items())

        async def turns() -> AsyncIterator[tuple[str, Running]]:
            # The first broker of a round may find a rested machine, so another one starts each time.
            order.rotate(-1)
            for mode, each in list(order):
                with each.without_others(brokers.values()):
                    await each.caught_up()
                    yield mode, each

        async for _, each in turns():
            # Java compiles code only after it has run often.
            await latencies(each.broker, RATES[1], WARM_SECONDS)
        for _ in range(ROUNDS):
            for name, work in RATES_OF_WORK.items():
                async for mode, each in turns():
                    note(mode, name, await work(each.broker))
                    await each.caught_up()
            async for mode, each in turns():
                note(mode, "received and completed/s", await drained(each.broker))
            for rate in RATES:
                async for mode, each in turns():
                    times = sorted(await latencies(each.broker, rate))
                    for name, at in (("p50", 0.5), ("p99", 0.99)):
                        note(mode, f"{name} s at {rate}/s", times[int(len(times) * at)])
            async for mode, each in turns():
                note(mode, "s, one message, idle", statistics.median([await single(each.broker) for _ in range(10)]))
        if IDLE_SECONDS:
            await asyncio.sleep(IDLE_SECONDS)
            for mode, each in brokers.items():
                note(mode, f"s, one message after {IDLE_SECONDS:.0f} s", await single(each.broker))
        return found


RATES_OF_WORK: dict[str, Work] = {
    "sends/s, 1 sender": lambda broker: sends_per_second(broker, 1, 1),
    "sends/s, 32 senders": lambda broker: sends_per_second(broker, 32, 1),
    "sends/s, batches of 100, 8 senders": lambda broker: sends_per_second(broker, 8, 100),
    "HTTP sends/s, 32 senders": lambda broker: http_sends_per_second(broker, 32, 1),
    "HTTP sends/s, batches of 100, 8 senders": lambda broker: http_sends_per_second(broker, 8, 100),
}


def filled_ledger(work: Path) -> Path:
    """Return a ledger of the broker that holds many ids, none of which is forgotten for days."""
    folder = work / "ledger"
    end = time.time_ns() // 1000
    # In one batch: a ledger with more batches than the outbox is refused, as a mix of backups.
    each = str(IDS // SHARDS)
    command = [sys.executable, "-m", "bench.fill", str(folder), each]
    parts = [subprocess.Popen([*command, str(part), str(end), *KEY_SIGNATURE, each]) for part in range(SHARDS)]
    assert all(part.wait() == 0 for part in parts), "filling a ledger failed"
    return folder


def shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3f}"


def main() -> None:
    from bench.nats import measured_nats

    # The gateway sets the same interval.
    sys.setswitchinterval(SWITCH_SECONDS)

    with tempfile.TemporaryDirectory(prefix="oncebus-bench-", dir=os.environ.get("BENCH_WORK")) as work:
        rounds = asyncio.run(measured(filled_ledger(Path(work))))
    if (nats := asyncio.run(measured_nats(SECONDS, BODY))) is not None:
        rounds["NATS JetStream"] = {name: [figure] for name, figure in nats.items()}
    medians = {
        mode: {name: statistics.median(each) for name, each in figures.items()} for mode, figures in rounds.items()
    }
    result: dict[str, Any] = {
        "cores": os.cpu_count(), "python": platform.python_version(), "ids": IDS, "rounds": rounds, "medians": medians
    }  # fmt: skip
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print_table(medians)
    write_plot(medians, RESULTS.with_suffix(".svg"))


def print_table(medians: dict[str, dict[str, float]]) -> None:
    """Print the medians, and the ratios of detection on to off. Above 1 is better."""
    table = Table("", *medians, "20 seconds : off", "7 days : off")
    for name in medians["off"]:
        figures = [medians[mode].get(name) for mode in medians]
        off = medians["off"][name]
        ratios = [medians[mode][name] / off for mode in ("20 seconds", "7 days")]
        better = [1 / ratio if is_time(name) else ratio for ratio in ratios]
        table.add_row(
            name,
            *("" if figure is None else shown(figure) for figure in figures),
            *(f"{ratio:.2f}" for ratio in better),
        )
    Console(width=140).print(table)


def is_time(name: str) -> bool:
    return "/s" not in name or " s at " in name


def write_plot(medians: dict[str, dict[str, float]], target: Path) -> None:
    """Plot the throughput and latency of each mode side by side."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "oncebus", "font.size": 10})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    sends = {"32 senders": "sends/s, 32 senders", "batches of 100": "sends/s, batches of 100, 8 senders"}
    times = {"p50": f"p50 s at {RATES[1]}/s", "p99": f"p99 s at {RATES[1]}/s"}
    for axes, names, scale in ((left, sends, 1000), (right, times, 1)):
        for at, mode in enumerate(MODES):
            places = [place + (at - 1) * 0.27 for place in range(len(names))]
            axes.bar(places, [medians[mode][name] / scale for name in names.values()], 0.25, label=mode)
        axes.set_xticks(range(len(names)), list(names))
    left.set(title="accepted durably", ylabel="thousand messages/s")
    right.set(title=f"send to receive, at {RATES[1]:,} messages/s", ylabel="seconds")
    left.legend(title="window")
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
