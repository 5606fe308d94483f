"""Where stored messages become text: beside the event loop, within bounds.

The sender of a message chooses how much work it is to read. A nested value of 250 KB may hold as many elements, and a
look at a few of them must not keep everybody else waiting. So a page costs a bounded number of bytes to read, anything
but the smallest work runs in a thread of its own, and only a few pages are made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from oncebus.amqp.sections import AMQP_VALUE, DATA, section
from oncebus.amqp.types import DecodeError
from oncebus.http.errors import Refused

LARGEST_SHOWN_VALUE = 64 * 1024
"""A value or sequence with more bytes is shown as its bytes to those who only look."""

LARGEST_VALUE = 1 << 20
"""A value or sequence with more bytes is handed out as its bytes."""

LARGEST_HEAD = 256 * 1024
"""Properties with more bytes are not read."""

MOST_BYTES_READ = 512 * 1024
"""Of properties, values and sequences, for one page."""

MOST_PAGES = 4
MOST_WAITING = 64
_MOST_PIECES = 64
_SMALL = 8 * 1024
_TEXT_OR_BYTES = frozenset({0xA0, 0xB0, 0xA1, 0xB1})

Made = TypeVar("Made")


class Allowance:
    """What may still be read for one page. It is enough for the largest properties and value that are read at all."""

    def __init__(self) -> None:
        self._left = MOST_BYTES_READ

    def take(self, size: int) -> bool:
        """Whether so many bytes may be read; if so, they are taken."""
        is_allowed = size <= self._left
        if is_allowed:
            self._left -= size
        return is_allowed


class Renderer:
    """Makes pages of messages without keeping the event loop from other work. One for an application."""

    def __init__(self) -> None:
        # One thread: however many look at once, the loop shares the interpreter with one of them only.
        self._thread = ThreadPoolExecutor(1, "rendering")
        self._pages = asyncio.Semaphore(MOST_PAGES)
        self._waiting = 0

    @asynccontextmanager
    async def page(self) -> AsyncIterator[None]:
        """Hold one of the few places from before messages are read from the store; 503 if too many wait for one."""
        if self._waiting >= MOST_WAITING:
            raise Refused(503, "The server is busy: too many look at messages at the same time.", {"retry-after": "10"})
        self._waiting += 1
        try:
            await self._pages.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._pages.release()

    async def make(self, size: int, work: Callable[[], Made]) -> Made:
        """What the work returns, which reads so many bytes. It must not touch what belongs to the event loop."""
        if size <= _SMALL:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def bytes_to_read(body: bytes) -> int:
    """How many bytes of a body have to be decoded to show it.

    None of plain data, but for data in very many pieces; none of a value that is a text or a binary.
    """
    try:
        kind, value, stop = section(body, 0, len(body))
    except (DecodeError, IndexError):
        return 0
    is_plain = kind == DATA or (kind == AMQP_VALUE and body[value] in _TEXT_OR_BYTES)
    return 0 if is_plain and stop * _MOST_PIECES >= len(body) else len(body)
