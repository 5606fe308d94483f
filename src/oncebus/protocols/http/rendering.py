"""Converts stored messages to text, within limits.

The sender of a message decides how much work it is to decode. A nested value of 250 KB may have 250,000 elements, and
peeking at a few such messages must not keep other clients waiting. So a page decodes a limited number of bytes, the
worker does it outside of the event loop, and only a few pages are made at a time.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from oncebus.amqp.sections import AMQP_VALUE, DATA, section
from oncebus.amqp.types import DecodeError, Described, Timestamp
from oncebus.protocols.http.errors import RETRY_SECONDS, Refused
from oncebus.protocols.http.times import iso8601
from oncebus.protocols.http.worker import Worker
from oncebus.values.durations import LAST_MOMENT, MILLISECOND

LARGEST_SHOWN_VALUE = 64 * 1024
"""A larger value or sequence is shown in its AMQP encoding when a client peeks."""

LARGEST_VALUE = 1 << 20
"""A larger value or sequence is delivered in its AMQP encoding."""

LARGEST_HEAD = 256 * 1024
"""Larger properties are not decoded."""

MOST_BYTES_READ = 512 * 1024
"""The maximum number of bytes of properties, values and sequences that one page decodes."""

MOST_PAGES = 4
MOST_WAITING = 64
_MOST_PIECES = 64
_TEXT_OR_BYTES = frozenset({0xA0, 0xB0, 0xA1, 0xB1})


class Allowance:
    """The number of bytes that one page may still decode.

    It starts with enough for the largest message that is decoded.
    """

    def __init__(self) -> None:
        self._left = MOST_BYTES_READ

    def take(self, size: int) -> bool:
        """Return whether this many bytes may be decoded; if so, subtract them."""
        is_allowed = size <= self._left
        if is_allowed:
            self._left -= size
        return is_allowed


class Renderer:
    """Limits the pages of messages that are made at the same time. An application has one, with its worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._pages = asyncio.Semaphore(MOST_PAGES)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def page(self, key: str) -> AsyncIterator[None]:
        """Wait for one of the few places for pages, and hold it.

        Raises `Refused` with 503 if too many wait, and enough of them have this key. Enter before reading messages from
        the store, so that few pages are in memory at a time.
        """
        if self._waiting.total() >= MOST_WAITING and self._waiting[key] >= MOST_WAITING // len(self._waiting):
            raise Refused(
                503, "The server is busy: too many clients peek at messages.", {"retry-after": str(RETRY_SECONDS)}
            )
        self._waiting[key] += 1
        try:
            await self._pages.acquire()
        finally:
            self._waiting -= Counter([key])
        try:
            yield
        finally:
            self._pages.release()


def bytes_to_read(body: bytes) -> int:
    """Return how many bytes of a body must be decoded to show it.

    It is 0 for data sections, unless there are very many, and 0 for a value that is a string or a binary.
    """
    try:
        kind, value, stop = section(body, 0, len(body))
    except (DecodeError, IndexError):
        return 0
    is_plain = kind == DATA or (kind == AMQP_VALUE and body[value] in _TEXT_OR_BYTES)
    return 0 if is_plain and stop * _MOST_PIECES >= len(body) else len(body)


def plain_value(value: Any, bytes_text: Callable[[bytes], str] = lambda some: base64.b64encode(some).decode()) -> Any:
    """Return a value of AMQP, converted to types that JSON has. `bytes_text` writes binaries."""
    match value:
        case None | bool():
            return value
        case Timestamp():
            return iso8601(value * MILLISECOND) if value * MILLISECOND <= LAST_MOMENT else int(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case bytes():
            return bytes_text(value)
        case dict():
            return {str(plain_value(name)): plain_value(item, bytes_text) for name, item in value.items()}
        case Described():
            return plain_value(value.value, bytes_text)
        case list() | tuple():
            return [plain_value(item, bytes_text) for item in value]
    return str(value)
