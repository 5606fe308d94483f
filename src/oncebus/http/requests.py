"""What is read of a request: its headers with the names that the sender wrote, its body up to a limit, its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from oncebus.http.errors import Refused
from oncebus.http.properties import Header

T = TypeVar("T")

HEADER_NAMES = "oncebus.header_names"
"""The extension by which our server tells how the names of headers were written; ASGI has them in lower case."""

GIVE_WAY = "oncebus.give_way"
"""The extension that lets our server close the connection of a request to make room for another."""

KNOWN = "oncebus.known"
"""The extension by which our server learns that a request is authenticated: its connection gives way last."""

_HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")

_WORTH_READING = 8 << 20
"""So much of a refused body is still read, that the sender gets to read the answer."""
_PATIENCE_SECONDS = 5.0
MOST_LEAVING = 100
"""Requests whose rest is read at the same time: anybody can announce a body and not send it."""


class Asked(Request):
    """A request. Its body is read here alone, so that it is known how much of it came."""

    is_read = False
    _is_given_up = False

    @property
    def named_host(self) -> str:
        """The host, and its port, by which the client knows us; empty where it names none."""
        host = self.headers.get("host", "")
        return host if _HOST.fullmatch(host) else ""

    @property
    def written_headers(self) -> list[Header]:
        """The headers as they were written, where the server says so."""
        headers: list[tuple[bytes, bytes]] = self.scope["headers"]
        written: list[bytes] = self.scope.get("extensions", {}).get(HEADER_NAMES, [])
        names = written if len(written) == len(headers) else [name for name, _ in headers]
        return [(name.decode("latin-1"), value) for name, (_, value) in zip(names, headers, strict=True)]

    @property
    def header_bytes(self) -> int:
        """How long the headers are together."""
        return sum(len(name) + len(value) + 4 for name, value in self.scope["headers"])

    @property
    def declared_length(self) -> int:
        """How long the body is said to be; 0 where nothing is said."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0

    async def read_body(self, most: int, seconds: float) -> bytes | None:
        """The body, None where it is longer than `most`. No more of it is read than that."""
        if self.declared_length > most:
            return None
        pieces, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                while not self.is_read:
                    pieces.append(await self.piece())
                    size += len(pieces[-1])
                    if size > most:
                        return None
        except TimeoutError:
            self._is_given_up = True
            raise Refused(408, f"The body of the request did not come within {seconds:g} seconds.") from None
        return b"".join(pieces)

    async def leave(self, response: Response) -> None:
        """Make an end of a request whose body may not have been read.

        A connection that is closed with bytes unread takes the answer with it, so what is not too much is read and
        thrown away; else the connection is closed.
        """
        if self.is_read or (self.declared_length == 0 and "transfer-encoding" not in self.headers):
            return
        # Who expects to be told whether to go on has sent nothing yet.
        is_worth_it = not self._is_given_up and "expect" not in self.headers
        if is_worth_it and self.declared_length <= _WORTH_READING and len(_LEAVING) < MOST_LEAVING:
            size = 0
            self.may_give_way()
            _LEAVING.add(self)
            try:
                with contextlib.suppress(TimeoutError, ClientDisconnect):
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        while not self.is_read and size <= _WORTH_READING:
                            size += len(await self.piece())
            finally:
                _LEAVING.discard(self)
        if not self.is_read:
            response.headers["connection"] = "close"

    def may_give_way(self) -> None:
        """What is still to come may be from anybody: the connection may be cut where others need its place."""
        self._notify_server(GIVE_WAY)

    def mark_known(self) -> None:
        """Note that the request is authenticated."""
        self._notify_server(KNOWN)

    def _notify_server(self, what: str) -> None:
        extensions: dict[str, Any] = self.scope.get("extensions") or {}
        if what in extensions:
            extensions[what]()

    def give_up(self) -> None:
        """Read no more of the body, and close the connection behind the answer."""
        self._is_given_up = True

    async def piece(self) -> bytes:
        """The next piece of the body; waits behind the last. Raises `ClientDisconnect`."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self.is_read = not message.get("more_body", False)
        return bytes(message.get("body", b""))


_LEAVING: set[Asked] = set()


async def unless_gone(request: Asked, work: Awaitable[T]) -> T:
    """What the work brings; it is given up when the client goes away."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(request: Asked) -> None:
    with contextlib.suppress(ClientDisconnect):
        while True:
            await request.piece()
