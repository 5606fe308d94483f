"""The side of HTTP that looks at bytes: uvicorn's, with bounds on a request's head, and header names as written."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oncebus.http.errors import HEADERS_TOO_LONG
from oncebus.http.requests import GIVE_WAY, HEADER_NAMES, KNOWN
from oncebus.listening import Places

LONGEST_HEAD = 128 * 1024
"""Past this the connection is closed; the application has a lower limit of its own."""
HEAD_SECONDS = 30.0
"""For the head of a request, from the connection's or its own first byte."""
MOST_HEADERS = 1000
"""Of one request, with what follows its body. Each takes many times its bytes."""
MOST_PIPELINED = 8
"""Requests of a connection that wait for the answer to another. Behind these it is closed."""
STUCK_SECONDS = 60.0
"""For a client to read some of an answer that waits for it."""
MOST_REFUSED = 100
"""So many connections beyond the limit are answered with 503; others are cut."""


class Protocol(HttpToolsProtocol):
    """One connection.

    What it gets at once is parsed at once, and each request in it takes some 3 KB: whoever sends many before the first
    is answered gets the answers to a few. A client that does not read its answer may have to give way.
    """

    places: Places | None = None
    """Where the connection is counted."""
    _names: list[bytes]
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _stuck_timer: asyncio.TimerHandle | None = None
    _is_extra = False
    """Whether it came when all places were busy."""
    _is_over = False
    """Whether nothing more is read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`. Who connects and says nothing is not waited for."""
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
        """See `asyncio.BaseProtocol`. The client does not read."""
        super().pause_writing()
        if self.places is not None:
            self.places.end(self)
        self._await_reading()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        super().resume_writing()
        self._end_stuck()
        if self.places is not None and self._is_asked:
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
            # The newest that is answered says that it is the last.
            self.pipeline[0][0].keep_alive = False
            return
        if self.places is not None:
            # By the places, and not as uvicorn counts: an answer that is being ended takes none from others.
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
        # The next request may be under way already.
        if self.places is not None and not self._is_asked:
            self.places.end(self)

    @property
    def _is_asked(self) -> bool:
        """Whether a request is under way."""
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def _should_upgrade(self) -> bool:
        # To nothing. The answer that this replaces goes through all headers, for each piece of a body.
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

        def look() -> None:
            if self.transport.get_write_buffer_size() >= waiting:
                self.abort()
            else:
                self._await_reading()

        self._stuck_timer = self.loop.call_later(STUCK_SECONDS, look)

    def _end_stuck(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None
