"""Mutated requests to the HTTP server over a socket: each is answered or disconnected, none fails, none leaks."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from oncebus.model.access import make_token
from oncebus.protocols.http import Limits, listen, server
from oncebus.values.durations import HOUR
from tests.protocols.http.http_front import HOST, ROOT, Front, running_front
from tests.protocols.http.mutations import TOKEN, spoiled

AT_ONCE = 64
BLOCK = 2_000
SILENCE = 0.5
"""How long to wait for a response: the server may itself wait for the rest of a body."""
_LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
GROWTH = 150 << 20
"""The most bytes that the process may grow after the first tenth."""
LIMITS = Limits(longest_wait_seconds=0.02, body_seconds=5.0)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def say(port: int, data: bytes) -> list[int]:
    """Send bytes on a connection, and return the statuses of the responses.

    It ends when the server disconnects or waits for more.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        with suppress(ConnectionError, TimeoutError):
            writer.write(data + _LAST)
            while True:
                async with asyncio.timeout(SILENCE):
                    piece = await reader.read(1 << 16)
                if not piece:
                    break
                said += piece
        return [int(status) for status in _STATUS.findall(said)]
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def prepare(front: Front) -> None:
    """Restore the entities that requests name, whatever earlier requests did to them."""
    for entity in (*front.broker.catalogue.queues, *front.broker.catalogue.topics):
        await front.broker.change(lambda catalogue, _, entity=entity: catalogue.delete(entity))  # type: ignore[misc]
    await front.queue("orders")
    await front.topic("news", "all")


async def fuzz(data: Path, count: int, seed: int, caplog: pytest.LogCaptureFixture) -> dict[int, int]:
    """Return how often each status occurred."""
    found: dict[int, int] = {}
    async with running_front(data, limits=LIMITS, host=None) as front:
        http = server(front.app, listen("127.0.0.1", 0))
        await http.start()
        token = make_token(f"http://{HOST}/", ROOT.name, ROOT.primary_key, front.time.now + HOUR).encode()
        began = 0
        try:
            for block in range(0, count, BLOCK):
                await prepare(front)
                random = Random(f"{seed} {block}")
                requests = [spoiled(random).replace(TOKEN.encode(), token) for _ in range(min(BLOCK, count - block))]

                async def speak(requests: list[bytes] = requests) -> None:
                    while requests:
                        one = requests.pop()
                        for status in await say(http.port, one):
                            found[status] = found.get(status, 0) + 1
                            assert status < 500 or status == 503, (status, one)
                        assert not failures(caplog), (one, failures(caplog))

                await asyncio.gather(*(speak() for _ in range(AT_ONCE)))
                caplog.clear()
                if block <= count // 10:
                    began = memory()
            assert memory() - began < GROWTH, (began, memory())
            await prepare(front)
            assert (await front.send("orders")).status == 201
        finally:
            await http.stop()
    return found


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def test_some_spoiled_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = asyncio.run(fuzz(tmp_path, 1000, 0, caplog))
    # Some requests are still valid.
    assert {200, 201, 400, 404} <= found.keys(), found


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 5))
def test_very_many_spoiled_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    with caplog.at_level(logging.INFO):
        asyncio.run(fuzz(tmp_path, int(os.environ.get("FUZZ_REQUESTS", "60000")), seed, caplog))
