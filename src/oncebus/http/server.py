"""The server: uvicorn, without its logs and signal handlers, at an address that is known before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from oncebus.http.protocol import Protocol
from oncebus.listening import CannotListen, Places, Tls, serve

MOST_CONNECTIONS = 2000
"""Past this, a connection that is idle gives way; where all are busy, requests on new ones are answered with 503."""
KEEP_ALIVE_SECONDS = 75
CLOSING_SECONDS = 2
"""For requests under way when the server stops. `serve` kills a gateway that takes much longer."""
_POLL_SECONDS = 0.01
_FAREWELL_SECONDS = 0.5


class HttpServer(uvicorn.Server):
    """Listens from its making on; answers from `start` to `stop`."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, most_connections: int) -> None:
        super().__init__(config)
        self._listener = listener
        self._places = Places(most_connections, "HTTP connections")
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    async def start(self) -> None:
        """Begin to answer; when this returns it does."""
        self._task = asyncio.create_task(self.serve([self._listener]))
        while not self.started and not self._task.done():
            await asyncio.sleep(_POLL_SECONDS)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Let requests come to their end for a moment, then close."""
        self.should_exit = True
        if self._task is not None:
            await self._task
        self._listener.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`. Connections are counted before they speak TLS."""
        config, lifespan = self.config, self.lifespan

        def make_protocol() -> Protocol:
            made = Protocol(config=config, server_state=self.server_state, app_state=lifespan.state)
            made.places = self._places
            return made

        await lifespan.startup()
        self.servers = [await serve(each, make_protocol, config.ssl, self._places) for each in sockets or ()]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        parting = asyncio.create_task(self._part())
        try:
            await super().shutdown(sockets)
        finally:
            parting.cancel()

    async def _part(self) -> None:
        """Do not wait for clients to agree to the end of TLS: those that are idle do not even look."""
        while True:
            await asyncio.sleep(_FAREWELL_SECONDS)
            for connection in list(self.server_state.connections):
                transport = connection.transport
                if transport is not None and transport.is_closing():
                    transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the process that this is part of."""
        yield


def server(
    app: Starlette,
    listener: socket.socket,
    tls: Tls | None = None,
    *,
    most_connections: int = MOST_CONNECTIONS,
    access_log: bool = False,
) -> HttpServer:
    """A server for the application at a socket of `listen`. Raises `CannotListen` for a certificate it cannot use."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="info" if access_log else "error",
        access_log=access_log,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        place = f"'{tls.certificate}' with '{tls.key}'" if tls else ""
        raise CannotListen(f"Certificate {place} cannot be used: {error.strerror or error}.") from error
    return HttpServer(config, listener, most_connections)
