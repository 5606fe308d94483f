"""A relay between clients and the broker: it ends TLS for those that insist on it, loses an answer on its way, or keeps
what clients say."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

DISPOSITION = 0x15
_CHUNK = 65536


class Frames:
    """Follows one direction of an AMQP connection from its beginning: which performatives came by."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[int]:
        self._rest += data
        while len(self._rest) >= 8:
            if self._rest.startswith(b"AMQP"):
                self._rest = self._rest[8:]
                continue
            size = int.from_bytes(self._rest[:4], "big")
            if len(self._rest) < size:
                return
            frame, self._rest = self._rest[:size], self._rest[size:]
            body = frame[4 * frame[4] :]
            if frame[5] == 0 and body[:2] == b"\x00\x53":
                yield body[2]


class Relay:
    """Leads each connection on to a port of this machine."""

    port: int

    def __init__(self, to: int, tls: ssl.SSLContext | None) -> None:
        self.lost = 0
        self.said: list[list[bytes]] = []
        """Of each connection that carries AMQP what the client said, in the pieces that it came in."""
        self._to, self._tls = to, tls
        self._is_losing = False
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()

    def lose_next_answer(self) -> None:
        """From now on clients hear nothing. With the broker's next answer to a transfer, or to a settlement, their
        connection is cut; the answer is lost, and connections made after that are led on as before.
        """
        self._is_losing = True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("localhost", self._to)
        self._open |= {writer, there}
        said: list[bytes] | None = None
        if self._tls is None:
            self.said.append(said := [])
        try:
            back = asyncio.create_task(self._bring_back(there_reader, writer))
            await asyncio.wait(
                [asyncio.create_task(_copy(reader, there, said)), back], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in (writer, there):
                self._open.discard(each)
                each.transport.abort()
            for each in (writer, there):
                with suppress(OSError):
                    await each.wait_closed()

    async def _bring_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                is_answer = self._tls is None and DISPOSITION in list(frames.feed(data))
                if not self._is_losing:
                    writer.write(data)
                    await writer.drain()
                elif is_answer:
                    self._is_losing = False
                    self.lost += 1
                    return

    async def _serve(self, ready: Future[None], ended: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        ready.set_result(None)
        await ended.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()
        # Each ends by itself once its transports are gone.
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*left, return_exceptions=True)

    @contextmanager
    def running(self) -> Iterator[Relay]:
        """Listens for the block, in a thread of its own."""
        ready: Future[None] = Future()
        ended = asyncio.Event()

        def run() -> None:
            try:
                self._loop.run_until_complete(self._serve(ready, ended))
            finally:
                self._loop.close()

        thread = threading.Thread(target=run, name="relay", daemon=True)
        thread.start()
        ready.result(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(ended.set)
            thread.join(30)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: list[bytes] | None) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            if kept is not None:
                kept.append(data)
            writer.write(data)
            await writer.drain()


@contextmanager
def relay(to: int, tls: ssl.SSLContext | None = None) -> Iterator[Relay]:
    """A relay for the block."""
    with Relay(to, tls).running() as running:
        yield running
