"""One HTTP connection: uvicorn's protocol, with limits on a request's head, and header names in their original case."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oncebus.http.errors import HEADERS_TOO_LONG
from oncebus.http.requests import GIVE_WAY, HEADER_NAMES, KNOWN
from oncebus.listening import Places

LONGEST_HEAD = 128 * 1024
"""Bytes of a request's head. Beyond this the connection is closed; the application has a lower limit of its own."""
HEAD_SECONDS = 30.0
"""Time to receive the head of a request, counted from the connection's start or the head's first byte."""
MOST_HEADERS = 1000
"""Headers of one request, trailers included. Each takes many times its bytes in memory."""
MOST_PIPELINED = 8
"""Requests of a connection that may wait for the response to an earlier one. After these it is closed."""
STUCK_SECONDS = 60.0
"""Time for a client to read some of a response that waits for it."""
MOST_REFUSED = 100
"""Connections beyond the limit that get a 503; more are closed without a response."""


class Protocol(HttpToolsProtocol):
    """One connection.

    All bytes that arrive together are parsed together, and each request takes some 3 KB. A client that sends many
    requests before the first response gets the responses to a few only. A client that does not read its response may be
    disconnected to make room for another.
    """

    places: Places | None = None
    """The places that count this connection; None if nothing counts it."""
    _names: list[bytes]
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _stuck_timer: asyncio.TimerHandle | None = None
    _is_extra = False
    """Whether all places were busy when it connected."""
    _is_over = False
    """Whether it ignores all further input."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`. The timer for the first head starts here, so that a silent client is disconnected."""
        super().connection_made(transport)
        places = self.places
        if places is not None:
            self._is_extra = not places.enter(self)
            if len(places) > places.most + MOST_REFUSED:
                self.abort()
                return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end_head()
        self._end_stuck()
        if self.places is not None:
            self.places.leave(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """See `Guest`."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._is_over:
            return
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response(HEADERS_TOO_LONG)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`. The client does not read, so its connection counts as idle."""
        super().pause_writing()
        if self.places is not None:
            self.places.end(self)
        self._await_reading()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        super().resume_writing()
        self._end_stuck()
        if self.places is not None and self._has_request:
            self.places.begin(self)

    def on_message_begin(self) -> None:
        """See `HttpToolsProtocol`."""
        if self._is_over:
            return
        super().on_message_begin()
        self._names, self._head_bytes = [], 0
        extensions: dict[str, Any] = {HEADER_NAMES: self._names, GIVE_WAY: self._give_way, KNOWN: self._know}
        self.scope["extensions"] = extensions
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """See `HttpToolsProtocol`."""
        if not self._is_over:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `HttpToolsProtocol`."""
        if self._is_over:
            return
        if len(self._names) == MOST_HEADERS:
            self._is_over = True
            self.send_400_response(HEADERS_TOO_LONG)
            return
        self._names.append(name)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        if self._is_over:
            return
        self._end_head()
        if len(self.pipeline) == MOST_PIPELINED:
            self._is_over = True
            # The response to the newest request of the pipeline announces that it is the last.
            self.pipeline[0][0].keep_alive = False
            return
        if self.places is not None:
            # The places decide, not uvicorn's count, which would include connections that are closing.
            self.limit_concurrency = 0 if self._is_extra and len(self.places) > self.places.most else None
            if not self.flow.write_paused:
                self.places.begin(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See `HttpToolsProtocol`."""
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        if not self._is_over:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        super().on_response_complete()
        # The next request may have begun already.
        if self.places is not None and not self._has_request:
            self.places.end(self)

    @property
    def _has_request(self) -> bool:
        """Return whether a request is under way."""
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def _should_upgrade(self) -> bool:
        # There is no upgrade. uvicorn's method would go through all headers for each piece of a body.
        return False

    def _give_way(self) -> None:
        if self.places is not None:
            self.places.end(self)

    def _know(self) -> None:
        if self.places is not None:
            self.places.know(self)

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
