"""NATS JetStream with Nats-Msg-Id beside the broker, where Debian's nats-server and nats-py are installed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
import socket
import tempfile
import time
import uuid
from typing import Any


async def measured_nats(seconds: float, body: bytes) -> dict[str, float] | None:
    """Publishes and receipts a second through its Python client; None if it is not installed."""
    program = shutil.which("nats-server")
    if program is None or importlib.util.find_spec("nats") is None:
        print("NATS JetStream is not measured: it takes Debian's nats-server and PyPI's nats-py.")
        return None
    nats: Any = importlib.import_module("nats")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nats-") as data:
        command = [program, "-js", "-sd", data, "-a", "127.0.0.1", "-p", str(port)]
        server = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await _listening(port)
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            stream = client.jetstream()
            await stream.add_stream(name="bench", subjects=["bench"], duplicate_window=600)
            figures = {
                "sends/s, 1 sender": await _published(stream, 1, seconds, body),
                "sends/s, 32 senders": await _published(stream, 32, seconds, body),
            }
            figures["received and completed/s"] = await _received(stream)
            await client.close()
            return figures
        finally:
            server.terminate()
            await server.wait()


async def _listening(port: int) -> None:
    for _ in range(100):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


async def _published(stream: Any, senders: int, seconds: float, body: bytes) -> float:
    end, sent = time.perf_counter() + seconds, 0

    async def sender() -> None:
        nonlocal sent
        while time.perf_counter() < end:
            await stream.publish("bench", body, headers={"Nats-Msg-Id": uuid.uuid4().hex})
            sent += 1

    began = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(senders)))
    return sent / (time.perf_counter() - began)


async def _received(stream: Any) -> float:
    nats_errors: Any = importlib.import_module("nats.errors")
    subscription = await stream.pull_subscribe("bench", "bench")
    began, taken = time.perf_counter(), 0
    while True:
        try:
            messages = await subscription.fetch(100, timeout=1)
        except nats_errors.TimeoutError:
            return taken / (time.perf_counter() - began - 1)
        for message in messages:
            await message.ack()
        taken += len(messages)
