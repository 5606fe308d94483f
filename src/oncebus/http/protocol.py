"""The side of HTTP that looks at bytes: uvicorn's, with bounds on a request's head, and header names as written."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oncebus.http.errors import HEADERS_TOO_LONG
from oncebus.http.requests import HEADER_NAMES
from oncebus.listening import Places

LONGEST_HEAD = 256 * 1024
"""Past this the connection is closed; the application has a lower limit of its own."""
HEAD_SECONDS = 30.0
"""For the head of a request, from the connection's or its own first byte."""
MOST_REFUSED = 100
"""So many connections beyond the limit are answered with 503; others are cut."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    places: Places | None = None
    """Where the connection is counted."""
    _names: list[bytes]
    _head_bytes = 0
    _is_in_head = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`. Who connects and says nothing is not waited for."""
        super().connection_made(transport)
        places = self.places
        if places is not None and not places.enter(self) and len(places) > places.most + MOST_REFUSED:
            self.abort()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._end_head()
        if self.places is not None:
            self.places.leave(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """See `Guest`."""
        # It counts no more from now on: others in the same turn of the loop would be answered with 503 for it.
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response(HEADERS_TOO_LONG)

    def on_message_begin(self) -> None:
        """See `HttpToolsProtocol`."""
        super().on_message_begin()
        self._names, self._head_bytes = [], 0
        extensions: dict[str, Any] = {HEADER_NAMES: self._names}
        self.scope["extensions"] = extensions
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `HttpToolsProtocol`."""
        self._names.append(name)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        self._end_head()
        if self.places is not None:
            self.places.begin(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        super().on_response_complete()
        # The next request may be under way already.
        if self.places is not None and not self.pipeline and (self.cycle is None or self.cycle.response_complete):
            self.places.end(self)

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
