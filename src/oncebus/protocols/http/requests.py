"""Reads a request: its headers in their original case, its body up to a limit, and the rest of a refused body."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from oncebus.protocols.http.errors import NO_PLACE, RETRY_SECONDS, Refused
from oncebus.protocols.http.paths import query_of
from oncebus.protocols.http.properties import Header

T = TypeVar("T")

HEADER_NAMES = "oncebus.header_names"
"""The extension that holds the names of headers in their original case; ASGI has them in lower case."""

PLACE = "oncebus.place"
"""The extension that holds the `RequestPlace`."""

HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
"""A Host header: the name or address of a host, with an optional port."""

_WORTH_READING = 8 << 20
"""The maximum number of bytes of a refused body that are still read, so that the sender can read the response."""
_PATIENCE_SECONDS = 5.0
MOST_LEAVING = 100
"""The maximum number of refused bodies that are read at the same time, because a client may never send its body."""


class RequestPlace(Protocol):
    """The place that the connection of a request takes in the server."""

    def know(self, key: str) -> bool:
        """Record the key that signed the request. Return False if the key has more than its share of the places."""

    def offer_place(self, give_way: Callable[[], None] | None = None) -> None:
        """Let the server give the place to another connection. It calls `give_way`, or else closes the connection."""

    def keep_place(self) -> None:
        """Take the offer back."""


class HttpRequest(Request):
    """A request. Only this class reads the body, so that it knows how much of it is left."""

    key = ""
    """The key that signed the request, as `identify` got it."""
    is_read = False
    has_given_way = False
    """Whether another connection has taken the place of this one, which must close after the response."""
    _is_given_up = False

    @property
    def query(self) -> dict[str, str]:
        """Return the query parameters by lower-case name. Raises `BadRequest`, as `query_of` does."""
        return query_of(self.scope["query_string"])

    @property
    def named_host(self) -> str:
        """Return the host and port in the request's Host header; empty if there is none."""
        host = self.headers.get("host", "")
        return host if HOST.fullmatch(host) else ""

    @property
    def written_headers(self) -> list[Header]:
        """Return the headers with the original case of their names, if the server provides it."""
        headers: list[tuple[bytes, bytes]] = self.scope["headers"]
        written: list[bytes] = self.scope.get("extensions", {}).get(HEADER_NAMES, [])
        names = written if len(written) == len(headers) else [name for name, _ in headers]
        return [(name.decode("latin-1"), value) for name, (_, value) in zip(names, headers, strict=True)]

    @property
    def header_bytes(self) -> int:
        """Return the total size of the headers."""
        return sum(len(name) + len(value) + 4 for name, value in self.scope["headers"])

    @property
    def declared_length(self) -> int:
        """Return the announced length of the body; 0 if there is none."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0

    async def read_body(self, most: int, seconds: float) -> bytes | None:
        """Return the body; None if it is longer than `most`. Raises `Refused` with 408 if it takes too long.

        It stops reading soon after `most` bytes.
        """
        if self.declared_length > most:
            return None
        pieces, size = [], 0
        try:
            with self.giving_way():
                async with asyncio.timeout(seconds):
                    while not self.is_read:
                        pieces.append(await self.piece())
                        size += len(pieces[-1])
                        if size > most:
                            return None
        except TimeoutError:
            self._is_given_up = True
            raise Refused(408, f"The body of the request did not arrive within {seconds:g} seconds.") from None
        return b"".join(pieces)

    async def read_whole(self, most: int, seconds: float, what: str = "body of the request") -> bytes:
        """Return the body. Raises `Refused`: with 413 if it is longer than `most`, with 408 if it takes too long."""
        body = await self.read_body(most, seconds)
        if body is None:
            raise Refused(413, f"The {what} exceeds the limit of {most} bytes.")
        return body

    async def leave(self, response: Response) -> None:
        """Finish a request whose body may not have been read.

        Closing a connection with unread bytes can destroy the response before the client reads it. So the rest of a
        body of moderate size is read and discarded; otherwise the connection is closed.
        """
        if self.is_read or (self.declared_length == 0 and "transfer-encoding" not in self.headers):
            return
        # A client that sent `Expect` waits for a response before it sends the body.
        is_worth_it = not self._is_given_up and "expect" not in self.headers
        if is_worth_it and self.declared_length <= _WORTH_READING and len(_LEAVING) < MOST_LEAVING:
            size = 0
            _LEAVING.add(self)
            try:
                with contextlib.suppress(TimeoutError, ClientDisconnect), self.giving_way():
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        while not self.is_read and size <= _WORTH_READING:
                            size += len(await self.piece())
            finally:
                _LEAVING.discard(self)
        if not self.is_read:
            response.headers["connection"] = "close"

    def identify(self, key: str) -> None:
        """Record the key that signed the request. Raises `Refused` with 503 if its connections take too many places."""
        self.key = key
        place = self._place
        if place is not None and not place.know(key):
            raise Refused(503, NO_PLACE, {"retry-after": str(RETRY_SECONDS)})

    @contextlib.contextmanager
    def giving_way(self, give_way: Callable[[], None] | None = None) -> Iterator[None]:
        """During the block, let the server give the place of this connection to another.

        The server calls `give_way` then, or closes the connection: the rest of a body may never arrive.
        """
        place = self._place
        if place is None:
            yield
            return
        place.offer_place(None if give_way is None else partial(self._give_way, give_way))
        try:
            yield
        finally:
            place.keep_place()

    def _give_way(self, then: Callable[[], None]) -> None:
        self.has_given_way = True
        then()

    @property
    def _place(self) -> RequestPlace | None:
        extensions: dict[str, Any] = self.scope.get("extensions") or {}
        return extensions.get(PLACE)

    async def piece(self) -> bytes:
        """Return the next piece of the body. After the last one it waits. Raises `ClientDisconnect`."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self.is_read = not message.get("more_body", False)
        return bytes(message.get("body", b""))


_LEAVING: set[HttpRequest] = set()


async def unless_gone(request: HttpRequest, work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client disconnects, cancel the work and raise `ClientDisconnect`."""
    leaving, working = asyncio.ensure_future(_disconnect(request)), asyncio.ensure_future(work)
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    if working.cancelled():
        raise ClientDisconnect
    return working.result()


async def _disconnect(request: HttpRequest) -> None:
    with contextlib.suppress(ClientDisconnect):
        while True:
            await request.piece()
