"""A proxy between the clients and the broker that cuts connections at the worst moments, or lets clients vanish."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from tests.clients.relay import DISPOSITION, Frames
from tests.in_thread import in_thread

_TRANSFER = 0x14
_CHUNK = 65536
_PATIENCE = 15.0


@dataclass(frozen=True, eq=False)
class _Pair:
    """The two directions of a connection, and the client's end of it."""

    client: asyncio.StreamWriter
    requests: asyncio.Task[None]
    answers: asyncio.Task[None]

    def stop(self) -> None:
        """Stop forwarding."""
        self.requests.cancel()
        self.answers.cancel()

    @property
    def is_stopped(self) -> bool:
        return self.requests.cancelled() or self.answers.cancelled()


class Proxy:
    """Forwards each connection to `target`, a local port that may change."""

    port: int

    def __init__(self, target: int, *, is_amqp: bool) -> None:
        self.target = target
        self._is_amqp = is_amqp
        self._before, self._after = threading.Event(), threading.Event()
        self._hit = threading.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._pairs: set[_Pair] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def cut_before(self, patience: float) -> bool:
        """Cut the next connection that sends a request, after half of the request. Return False if none came."""
        return self._wait_for(self._before, patience)

    def cut_after(self, patience: float) -> bool:
        """Cut the next connection that gets an answer, instead of passing on the answer. Return False if none came."""
        return self._wait_for(self._after, patience)

    def cut_all(self) -> bool:
        """Cut all connections now."""
        assert self._loop is not None
        count = len(self._open)
        self._loop.call_soon_threadsafe(self._abort_all)
        return count > 0

    def vanish(self, seconds: float) -> bool:
        """Stop forwarding on all connections of now, without closing any. Their clients notice after `seconds`.

        The broker gets no sign from the network: each of its connections stays open until it closes it.
        """
        assert self._loop is not None
        pairs = list(self._pairs)
        for pair in pairs:
            self._loop.call_soon_threadsafe(pair.stop)
        time.sleep(seconds)
        for pair in pairs:
            self._loop.call_soon_threadsafe(pair.client.transport.abort)
        return bool(pairs)

    def _abort_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    def _wait_for(self, armed: threading.Event, patience: float) -> bool:
        self._hit.clear()
        armed.set()
        is_hit = self._hit.wait(patience)
        armed.clear()
        return is_hit

    def _carries(self, frames: Frames, data: bytes) -> bool:
        """Return whether data contains a message or a settlement, or the answer to one."""
        if not self._is_amqp:
            return True
        return not {_TRANSFER, DISPOSITION}.isdisjoint(list(frames.feed(data)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, there}
        requests = asyncio.create_task(self._copy(reader, there, self._before, cuts_in_half=True))
        answers = asyncio.create_task(self._copy(there_reader, writer, self._after, cuts_in_half=False))
        pair = _Pair(writer, requests, answers)
        self._pairs.add(pair)
        try:
            await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
            if pair.is_stopped:
                await _read_to_end(there_reader)
        finally:
            self._pairs.discard(pair)
            for each in (writer, there):
                self._open.discard(each)
                each.transport.abort()
            await asyncio.gather(requests, answers, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target. While nothing listens there, clients wait, up to a limit."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, armed: threading.Event, *, cuts_in_half: bool
    ) -> None:
        frames = Frames()
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._carries(frames, data) and armed.is_set():
                    armed.clear()
                    if cuts_in_half:
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        # An abort would discard data that the socket has not sent yet.
                        await asyncio.sleep(0.01)
                    self._hit.set()
                    return
                writer.write(data)
                await writer.drain()

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[Proxy]:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._abort_all()
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            await asyncio.gather(*left, return_exceptions=True)


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    """Discard everything until the broker closes the connection."""
    with suppress(OSError):
        while await reader.read(_CHUNK):
            pass


@contextmanager
def proxy(target: int, *, is_amqp: bool) -> Iterator[Proxy]:
    """Yield a proxy, and close it after the block."""
    with in_thread(Proxy(target, is_amqp=is_amqp)._served) as running:
        yield running
