"""The names of uvicorn that we use although they are not public.

uvicorn takes any class for the protocol of its connections, and has no public one to build on. Our protocol uses what
is inside uvicorn's class through the methods here. Each says what we need and why uvicorn alone does not do it. A test
for each name fails when uvicorn no longer has it.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class UvicornProtocol(HttpToolsProtocol):
    """uvicorn's protocol of one HTTP connection, which parses requests and answers them with an application."""

    def stop_keep_alive_timer(self) -> None:
        """Keep an idle connection open, because bytes have arrived. uvicorn does this in its own `data_received`."""
        self._unset_keepalive_if_required()

    def has_request(self) -> bool:
        """Return whether a request is under way. uvicorn shows it only in the response that it works on."""
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def count_pipelined(self) -> int:
        """Return how many requests wait for an earlier response. uvicorn has no limit for them."""
        return len(self.pipeline)

    def end_after_pipelined(self) -> None:
        """Announce in the response to the newest request that waits that it is the last. uvicorn would read on."""
        self.pipeline[0][0].keep_alive = False

    def may_write(self) -> bool:
        """Return whether the client reads its response fast enough. asyncio tells the protocol only of changes."""
        return not self.flow.write_paused

    def extend_scope(self, extensions: dict[str, Any]) -> None:
        """Give the application more about the request that has begun. uvicorn offers no hook for it."""
        self.scope["extensions"] = extensions

    def refuse(self, text: str) -> None:
        """Answer with a 400 and close the connection, for a request that no application sees."""
        self.send_400_response(text)

    def release(self) -> None:
        """Let uvicorn forget the connection, which another protocol takes over. Its stop leaves the connection open."""
        self.connections.discard(self)

    def _should_upgrade(self) -> bool:
        """Return False: our protocol decides. uvicorn's own method would search all headers for each part of a body."""
        return False
