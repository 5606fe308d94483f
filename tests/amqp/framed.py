"""A client's end of a WebSocket: frames what it writes, and reads only when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import cast

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

_CHUNK = 65536


class FramedReader:
    """The bytes inside a server's binary messages. Answers pings and closes while it reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: Protocol) -> None:
        self._reader, self._writer, self._frames = reader, writer, frames
        self._read = b""
        self.received: list[Frame] = []
        """All frames so far."""

    async def readexactly(self, count: int) -> bytes:
        """See `asyncio.StreamReader`."""
        while len(self._read) < count:
            if not await self._more():
                raise asyncio.IncompleteReadError(self._read, count)
        return self._taken(count)

    async def read(self, count: int = -1) -> bytes:
        """See `asyncio.StreamReader`."""
        while (count < 0 or not self._read) and await self._more():
            pass
        return self._taken(len(self._read) if count < 0 else count)

    async def frame(self) -> Frame:
        """Return the next frame of any kind."""
        before = len(self.received)
        while len(self.received) == before:
            assert await self._more(), "the server has disconnected"
        return self.received[before]

    def _taken(self, count: int) -> bytes:
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    async def _more(self) -> bool:
        data = await self._reader.read(_CHUNK)
        if not data:
            return False
        self._frames.receive_data(data)
        for frame in cast(Iterable[Frame], self._frames.events_received()):
            self.received.append(frame)
            if frame.opcode in (Opcode.BINARY, Opcode.CONT):
                self._read += frame.data
        with contextlib.suppress(ConnectionError):
            self._writer.write(b"".join(self._frames.data_to_send()))
        return True


class FramedWriter:
    """Writes each piece as one binary message, also after a close."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.transport = writer.transport

    def write(self, data: bytes) -> None:
        """See `asyncio.StreamWriter`."""
        self.write_raw(Frame(Opcode.BINARY, data).serialize(mask=True))

    def write_raw(self, data: bytes) -> None:
        """Write bytes that may be no frame."""
        self._writer.write(data)

    async def drain(self) -> None:
        """See `asyncio.StreamWriter`."""
        await self._writer.drain()

    def close(self) -> None:
        """See `asyncio.StreamWriter`. It just disconnects."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """See `asyncio.StreamWriter`."""
        await self._writer.wait_closed()


def framed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a WebSocket over those of a socket."""
    frames = Protocol(Side.CLIENT, max_size=None)
    both = FramedReader(reader, writer, frames), FramedWriter(writer)
    return cast(tuple[asyncio.StreamReader, asyncio.StreamWriter], both)
