"""A client on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from oncebus.amqp.frames import AMQP_HEADER
from oncebus.amqp.performatives import Begin, Open
from tests.amqp.client import BEGIN, OPEN, Sent, frames, written
from tests.amqp.framed import framed
from tests.amqp.transports import is_websocket

PATIENCE = 60


class Socket:
    """A client on a socket. It reads only when a test calls a method that reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def header(self) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(8), PATIENCE)

    async def frame(self) -> Sent:
        """Return the next frame that is not a heartbeat."""
        while True:
            (sent,) = frames(await self.raw_frame())
            if sent.performative is not None:
                return sent

    async def raw_frame(self) -> bytes:
        head = await asyncio.wait_for(self.reader.readexactly(4), PATIENCE)
        return head + await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head, "big") - 4), PATIENCE)

    async def expect(self, *kinds: type) -> list[Any]:
        found = [(await self.frame()).performative for _ in kinds]
        assert [type(it) for it in found] == list(kinds)
        return found

    async def opened(self, opened: Open = OPEN, begin: Begin = BEGIN) -> None:
        await self.say(AMQP_HEADER, written(opened), written(begin))
        assert await self.header() == AMQP_HEADER
        await self.expect(Open, Begin)

    async def end_of_stream(self) -> bytes:
        """Return all bytes until the server disconnects."""
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        return b""


@contextlib.asynccontextmanager
async def connected(port: int, limit: int = 2**16) -> AsyncIterator[Socket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    if is_websocket():
        reader, writer = framed(reader, writer)
    try:
        yield Socket(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def pass_time(seconds: float) -> None:
    """Advance the clock of the running loop, so that the timers of this time fire, however slow the machine is."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), PATIENCE)
