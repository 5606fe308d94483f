"""A relay between clients and the broker. It can terminate TLS, lose an answer, or record the bytes of clients."""

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
    """Parses one direction of an AMQP connection and yields the codes of its performatives."""

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
    """Forwards each connection to a local port."""

    port: int

    def __init__(self, to: int, tls: ssl.SSLContext | None) -> None:
        self.lost = 0
        self.said: list[list[bytes]] = []
        """The bytes of the client on each AMQP connection, in the pieces that came."""
        self._to, self._tls = to, tls
        self._is_losing = False
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()

    def lose_next_answer(self) -> None:
        """Stop forwarding to the clients, and lose the broker's next answer to a transfer or a settlement.

        The relay drops the connections then. It forwards later connections as before.
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
        # Each task ends after its transports are closed.
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*left, return_exceptions=True)

    @contextmanager
    def running(self) -> Iterator[Relay]:
        """Run the relay in its own thread for the block."""
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
    """Run a relay for the block."""
    with Relay(to, tls).running() as running:
        yield running
