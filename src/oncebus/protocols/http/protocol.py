"""One HTTP connection: uvicorn's protocol, with limits on a request's head, and header names in their original case.

A request may ask for another protocol, which then takes over the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import httptools

from oncebus.protocols.http.borrowed import UvicornProtocol
from oncebus.protocols.http.errors import HEADERS_TOO_LONG, UPGRADE_WITH_BODY
from oncebus.protocols.http.requests import HEADER_NAMES, PLACE
from oncebus.protocols.listening import Places

LONGEST_HEAD = 128 * 1024
"""The maximum size of a request's head. Beyond it the connection is closed. The application has a lower limit."""
HEAD_SECONDS = 30.0
"""Time to receive the head of a request, counted from the connection's start or the head's first byte."""
MOST_HEADERS = 1000
"""The maximum number of headers in one request, including trailers. In memory, each takes many times its size."""
MOST_PIPELINED = 8
"""The maximum number of requests that wait for an earlier response. Beyond it the connection is closed."""
STUCK_SECONDS = 60.0
"""The time limit for a client to read a part of a waiting response."""
MOST_BEYOND = 100
"""The number of connections beyond the limit, for health and for keys with few connections. Others are closed."""

Header = tuple[bytes, bytes]


class Upgraded(NamedTuple):
    """The response to an upgrade request, and the protocol that takes over. If it is None, the connection is closed."""

    response: bytes
    protocol: asyncio.Protocol | None


Upgrade = Callable[[bytes, Sequence[Header]], Upgraded | None]
"""Takes the path and headers of a GET request that asks for another protocol. Returns None for an ordinary request."""


class Protocol(UvicornProtocol):
    """One connection.

    All bytes that arrive together are parsed together, and each request takes some 3 KB. If a client sends many
    requests before the first response, only a few of them are answered. A client that does not read its response may be
    disconnected to make room for another.
    """

    places: Places | None = None
    """The places that count this connection; None if nothing counts it."""
    upgrade: Upgrade | None = None
    """Handles requests for another protocol; None if no other protocol is offered."""
    _upgraded: Upgraded | None = None
    _names: list[bytes]
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _stuck_timer: asyncio.TimerHandle | None = None
    _is_over = False
    """Whether it ignores all further input."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`. The timer for the first head starts here, so that a silent client is disconnected."""
        super().connection_made(transport)
        places = self.places
        if places is not None:
            places.enter(self)
            if len(places) > places.most + MOST_BEYOND:
                self.abort()
                return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._leave()
        super().connection_lost(exc)

    def abort(self) -> None:
        """See `Guest`."""
        self.transport.abort()

    def know(self, key: str) -> bool:
        """See `RequestPlace`."""
        return self.places is None or self.places.know(self, key)

    def offer_place(self, give_way: Callable[[], None] | None = None) -> None:
        """See `RequestPlace`."""
        if self.places is not None:
            self.places.end(self, give_way)

    def keep_place(self) -> None:
        """See `RequestPlace`. A connection whose client does not read its response stays idle."""
        if self.places is not None and self.may_write():
            self.places.begin(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_over:
            return
        self.stop_keep_alive_timer()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            if self._upgraded is not None:
                self._switch(self._upgraded, data[end.args[0] :])
        except httptools.HttpParserError:
            self.refuse("Invalid HTTP request received.")
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD and not self.transport.is_closing():
                self.refuse(HEADERS_TOO_LONG)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`. The client does not read, so its connection counts as idle."""
        super().pause_writing()
        self.offer_place()
        self._await_reading()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        super().resume_writing()
        self._end_stuck()
        if self.has_request():
            self.keep_place()

    def on_message_begin(self) -> None:
        """See `UvicornProtocol`."""
        if self._is_over:
            return
        super().on_message_begin()
        self._names, self._head_bytes = [], 0
        extensions: dict[str, Any] = {HEADER_NAMES: self._names, PLACE: self}
        self.extend_scope(extensions)
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """See `UvicornProtocol`."""
        if not self._is_over:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `UvicornProtocol`."""
        if self._is_over:
            return
        if len(self._names) == MOST_HEADERS:
            self._is_over = True
            self.refuse(HEADERS_TOO_LONG)
            return
        self._names.append(name)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """See `UvicornProtocol`."""
        if self._is_over:
            return
        self._end_head()
        self._upgraded = self._asked_upgrade()
        if self._upgraded is not None:
            self._is_over = True
            return
        if self.parser.should_upgrade() and self._has_body():
            # The parser skips the body of such a request, or takes it for the next request.
            self._is_over = True
            self.refuse(UPGRADE_WITH_BODY)
            return
        if self.count_pipelined() == MOST_PIPELINED:
            self._is_over = True
            self.end_after_pipelined()
            return
        if not self.has_request():
            # A request that waits behind another does not change what that one offers.
            self.keep_place()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See `UvicornProtocol`."""
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """See `UvicornProtocol`."""
        if not self._is_over:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """See `UvicornProtocol`."""
        super().on_response_complete()
        # The next request may have begun already.
        if not self.has_request():
            self.offer_place()

    def _asked_upgrade(self) -> Upgraded | None:
        """Return the answer to a request for another protocol. It must be the only request and have no body."""
        if self.upgrade is None or not self.parser.should_upgrade() or self.has_request():
            return None
        if self._has_body() or self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
            return None
        return self.upgrade(httptools.parse_url(self.url).path or b"", self.headers)

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )

    def _switch(self, upgraded: Upgraded, rest: bytes) -> None:
        """Answer an upgrade and hand over the connection, with the bytes that followed the request."""
        transport, protocol = self.transport, upgraded.protocol
        transport.write(upgraded.response)
        if protocol is None:
            transport.close()
            return
        self._leave()
        self.release()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest and not transport.is_closing():
            protocol.data_received(rest)

    def _leave(self) -> None:
        self._end_head()
        self._end_stuck()
        if self.places is not None:
            self.places.leave(self)

    def _await_head(self) -> None:
        self._end_head()
        self._is_in_head = True
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self.transport.close()

    def _await_reading(self) -> None:
        self._end_stuck()
        waiting = self.transport.get_write_buffer_size()

        def check_progress() -> None:
            if self.transport.get_write_buffer_size() >= waiting:
                self.abort()
            else:
                self._await_reading()

        self._stuck_timer = self.loop.call_later(STUCK_SECONDS, check_progress)

    def _end_stuck(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None
