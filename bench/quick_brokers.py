"""The brokers of `make bench-quick`: what one of them does in a round, and its figures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from bench import nats
from bench.latency import percentiles, times_of
from bench.served import Served, since

SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))
COUNT = int(os.environ.get("BENCH_COUNT", "50"))
RATE = int(os.environ.get("BENCH_RATE", "2000"))
PAUSE = 0.03
RATE_SECONDS = 1.5 * SECONDS
WARM_SECONDS = 3 * SECONDS
BODY = b"x" * 200
IN_FLIGHT = 400
SENDERS = 32
TOGETHER = f"{SENDERS} awaiting senders on one connection"
APART = f"{SENDERS} awaiting senders with a connection each"
QUIET_CORES = 0.5
LOOK_SECONDS = 0.5
PATIENCE = 120.0
ROOT = Path(__file__).parent.parent

Times = dict[str, list[float]]


class Load(NamedTuple):
    """How many messages were accepted or completed, and in how many seconds."""

    messages: int
    seconds: float


class MeasuredBroker:
    """A broker that runs, with the clients that suit it."""

    sends: tuple[str, ...] = (TOGETHER, APART, f"{IN_FLIGHT} in flight")
    """The ways of sending that it knows, in order."""

    def __init__(self, running: Served) -> None:
        self.served = running

    def one_by_one(self, count: int) -> Times:
        raise NotImplementedError

    def at_a_rate(self, seconds: float) -> Times:
        raise NotImplementedError

    def sent(self, way: str) -> Load:
        raise NotImplementedError

    def drained(self, messages: int) -> Load:
        raise NotImplementedError

    def warm_up(self) -> None:
        """Use it in all ways: Java compiles code only after it has run often."""
        self.one_by_one(20)
        self.at_a_rate(WARM_SECONDS)
        for way in self.sends:
            self.drained(self.sent(way).messages)

    def figures(self) -> Iterator[tuple[str, float]]:
        """Use the broker in all ways, and yield the figures of this round. Its queue is empty before and after."""
        found = percentiles(self.one_by_one(COUNT))
        for label in ("p50", "p99", "accepted p50"):
            yield f"one message on an idle broker, {label}, ms", found[label]
        before = self.served.cpu()
        times = self.at_a_rate(RATE_SECONDS)
        found = percentiles(times)
        for label in ("p50", "p99"):
            yield f"{RATE:,} messages/s, {label}, ms", found[label]
        yield from self._spent(f"at {RATE:,} messages/s", before, len(times["sent"]))
        before = self.served.cpu()
        messages = 0
        for way in self.sends:
            load = self.sent(way)
            messages += load.messages
            yield f"accepted/s, {way}", load.messages / load.seconds
        self._wait_until_quiet()
        load = self.drained(messages)
        yield "received and completed/s", load.messages / load.seconds
        yield from self._spent("as fast as it can", before, messages)

    def _spent(self, when: str, before: dict[str, float], messages: int) -> Iterator[tuple[str, float]]:
        """Yield the CPU seconds since then, per million messages from the send to the completion."""
        for role, cpu in since(before, self.served.cpu()).items():
            yield f"CPU s per million {when}: {role}", cpu / messages * 1e6

    def _wait_until_quiet(self) -> None:
        """Wait until nothing is left to do for what was sent: then receivers do not wait for the pipeline."""
        end = time.monotonic() + PATIENCE
        used = sum(self.served.cpu().values())
        while time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
            before, used = used, sum(self.served.cpu().values())
            if (used - before) / LOOK_SECONDS < QUIET_CORES:
                return


class AmqpBroker(MeasuredBroker):
    """A broker that our own AMQP client loads, each time in a new process."""

    WAYS: ClassVar = {
        TOGETHER: ("send", "1", str(SENDERS), "1", "1", str(SECONDS)),
        APART: ("send", str(SENDERS), "1", "1", "1", str(SECONDS)),
        f"{IN_FLIGHT} in flight": ("send", "1", "4", "1", str(IN_FLIGHT // 4), str(SECONDS)),
        "batches of 100": ("send", "1", "4", "100", "0", str(SECONDS)),
    }

    def one_by_one(self, count: int) -> Times:
        return times_of(self.served, "one", str(count), str(PAUSE))

    def at_a_rate(self, seconds: float) -> Times:
        return times_of(self.served, "rate", str(RATE), str(seconds))

    def sent(self, way: str) -> Load:
        return self._load(*self.WAYS[way])

    def drained(self, messages: int) -> Load:
        return self._load("drain", "4", "500", str(messages))

    def _load(self, *words: str) -> Load:
        done = subprocess.run(
            [sys.executable, "-m", "bench.amqp_load", *words],
            cwd=ROOT,
            env=self.served.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=2 * PATIENCE,
        )
        found = json.loads(done.stdout)
        assert found["messages"], f"no message came through: {words}"
        return Load(found["messages"], found["seconds"])


class OncebusBroker(AmqpBroker):
    sends = (*MeasuredBroker.sends, "batches of 100")


class ArtemisBroker(AmqpBroker):
    """It knows no batches: those are Service Bus's own format."""


class NatsBroker(MeasuredBroker):
    """NATS with its own client, in this process."""

    def one_by_one(self, count: int) -> Times:
        async def run() -> Times:
            async with nats.stream_of(self.served.string) as stream:
                return await nats.one_by_one(stream, BODY, count, PAUSE)

        return asyncio.run(run())

    def at_a_rate(self, seconds: float) -> Times:
        async def run() -> Times:
            async with nats.stream_of(self.served.string) as stream:
                return await nats.at_a_rate(stream, BODY, RATE, seconds)

        return asyncio.run(run())

    def sent(self, way: str) -> Load:
        senders = int(way.split()[0])
        connections = SENDERS if way == APART else 1

        async def run() -> Load:
            async with contextlib.AsyncExitStack() as stack:
                streams = [
                    await stack.enter_async_context(nats.stream_of(self.served.string)) for _ in range(connections)
                ]
                return Load(*await nats.published(streams, senders, SECONDS, BODY))

        return asyncio.run(run())

    def drained(self, messages: int) -> Load:
        async def run() -> Load:
            async with nats.stream_of(self.served.string) as stream:
                return Load(*await nats.drained(stream, messages))

        return asyncio.run(run())
