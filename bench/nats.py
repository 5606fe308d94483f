"""NATS JetStream with Nats-Msg-Id as the benchmarks run it, if Debian's nats-server and PyPI's nats-py are installed.

Its client is nats-py, which takes more CPU time than our AMQP client: rates are those of the two together.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from bench.served import PATIENCE, Served

SUBJECT = "bench"
WINDOW_SECONDS = 600
_IDS = itertools.count(uuid.uuid4().int >> 64 << 64)


def missing() -> str | None:
    """Return why it cannot be run, or None."""
    if shutil.which("nats-server") is None or importlib.util.find_spec("nats") is None:
        return "NATS JetStream is not measured: it needs Debian's nats-server and PyPI's nats-py."
    return None


@contextlib.contextmanager
def nats_server() -> Iterator[Served]:
    """A server over a new data folder; its string is its address. It is stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="oncebus-bench-", ignore_cleanup_errors=True) as data:
        began = time.perf_counter()
        process = subprocess.Popen(
            ["nats-server", "-js", "-sd", data, "-a", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running = Served(process, f"nats://127.0.0.1:{port}", role="broker")
        try:
            _wait_for(port, began + PATIENCE)
            running.seconds["ready"] = time.perf_counter() - began
            yield running
            running.stop()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)


def _wait_for(port: int, end: float) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.perf_counter() < end, "nats-server did not start"
            time.sleep(0.02)
        else:
            return


@contextlib.asynccontextmanager
async def stream_of(address: str) -> AsyncIterator[Any]:
    """A stream that remembers ids for ten minutes."""
    nats: Any = importlib.import_module("nats")
    client = await nats.connect(address)
    stream = client.jetstream()
    await stream.add_stream(name=SUBJECT, subjects=[SUBJECT], duplicate_window=WINDOW_SECONDS)
    try:
        yield stream
    finally:
        await client.close()


async def publish(stream: Any, body: bytes) -> None:
    await stream.publish(SUBJECT, body, headers={"Nats-Msg-Id": f"{next(_IDS):032x}"})


async def published(streams: Sequence[Any], senders: int, seconds: float, body: bytes) -> tuple[int, float]:
    """Return how many messages that many awaiting senders published over the streams, and in how many seconds."""
    end, sent = time.perf_counter() + seconds, 0

    async def sender(stream: Any) -> None:
        nonlocal sent
        while time.perf_counter() < end:
            await publish(stream, body)
            sent += 1

    began = time.perf_counter()
    await asyncio.gather(*(sender(streams[at % len(streams)]) for at in range(senders)))
    return sent, time.perf_counter() - began


async def drained(stream: Any, count: int) -> tuple[int, float]:
    """Receive and acknowledge that many messages, 100 at a time, and empty the stream. Return them and the seconds."""
    subscription = await stream.pull_subscribe(SUBJECT, SUBJECT)
    began, taken = time.perf_counter(), 0
    while taken < count:
        # Not more than there are: it would wait for the rest until the timeout.
        for message in await subscription.fetch(min(100, count - taken), timeout=PATIENCE):
            await message.ack()
            taken += 1
    passed = time.perf_counter() - began
    await subscription.unsubscribe()
    await stream.purge_stream(SUBJECT)
    return taken, passed


@contextlib.asynccontextmanager
async def arrivals(stream: Any) -> AsyncIterator[list[float]]:
    """When messages arrive at a receiver that acknowledges each of them. The stream is emptied at the end."""
    arrived: list[float] = []

    async def receive(message: Any) -> None:
        arrived.append(time.monotonic())
        await message.ack()

    subscription = await stream.subscribe(SUBJECT, cb=receive, manual_ack=True)
    yield arrived
    await subscription.unsubscribe()
    await stream.purge_stream(SUBJECT)


async def _until(arrived: list[float], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(arrived) < count:
            await asyncio.sleep(0.0005)


async def one_by_one(stream: Any, body: bytes, count: int, pause: float) -> dict[str, list[float]]:
    """Send a message at a time to an idle server. Return when each was sent, accepted and received."""
    sent: list[float] = []
    accepted: list[float] = []
    async with arrivals(stream) as arrived:
        for _ in range(count):
            sent.append(time.monotonic())
            await publish(stream, body)
            accepted.append(time.monotonic())
            await _until(arrived, len(sent))
            await asyncio.sleep(pause)
        return {"sent": sent, "accepted": accepted, "arrived": arrived}


async def at_a_rate(stream: Any, body: bytes, rate: float, seconds: float) -> dict[str, list[float]]:
    """Send at a steady rate. Return when each message was sent, accepted and received, in the order of each."""
    sent: list[float] = []
    accepted: list[float] = []
    async with arrivals(stream) as arrived, asyncio.TaskGroup() as publishing:

        async def send() -> None:
            await publish(stream, body)
            accepted.append(time.monotonic())

        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            while len(sent) < int(passed * rate):
                sent.append(time.monotonic())
                publishing.create_task(send())
            await asyncio.sleep(0.001)
        await _until(arrived, len(sent))
        await _until(accepted, len(sent))
    return {"sent": sent, "accepted": accepted, "arrived": arrived}


async def measured_nats(seconds: float, body: bytes) -> dict[str, float] | None:
    """Return publishes and receipts per second; None if it is not installed."""
    if (why := missing()) is not None:
        print(why)
        return None
    with nats_server() as running:
        async with stream_of(running.string) as stream:
            figures, messages = {}, 0
            for name, senders in (("sends/s, 1 sender", 1), ("sends/s, 32 senders", 32)):
                sent, passed = await published([stream], senders, seconds, body)
                figures[name] = sent / passed
                messages += sent
            taken, passed = await drained(stream, messages)
            return {**figures, "received and completed/s": taken / passed}
