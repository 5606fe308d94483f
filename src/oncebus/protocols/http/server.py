"""The server: uvicorn without its logs and signal handlers, on a socket that listens before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from oncebus.protocols.http.protocol import Protocol, Upgrade
from oncebus.protocols.listening import CannotListen, Places, Tls, serve

MOST_CONNECTIONS = 2000
"""The maximum number of connections. Beyond it, a new one replaces an idle one, or gets a 503 if all are busy."""
KEEP_ALIVE_SECONDS = 75
CLOSING_SECONDS = 2
"""The time limit for requests under way when the server stops. `serve` kills a gateway that takes much longer."""
_POLL_SECONDS = 0.01
_TLS_CLOSE_SECONDS = 0.5


class HttpServer(uvicorn.Server):
    """A server that listens once it is created, if it has a socket, and answers requests between `start` and `stop`."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket | None, most_connections: int, upgrade: Upgrade | None
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._places = Places(most_connections, "HTTP connections")
        self._upgrade = upgrade
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        assert self._listener is not None
        return int(self._listener.getsockname()[1])

    def make_protocol(self) -> Protocol:
        """Return a protocol for a connection that was accepted elsewhere. Call it only after `start`."""
        made = Protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        made.places, made.upgrade = self._places, self._upgrade
        return made

    async def start(self) -> None:
        """Start the server, and return once it answers requests."""
        self._task = asyncio.create_task(self.serve([] if self._listener is None else [self._listener]))
        while not self.started and not self._task.done():
            await asyncio.sleep(_POLL_SECONDS)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Give requests a moment to finish, then close all connections."""
        self.should_exit = True
        if self._task is not None:
            await self._task
        if self._listener is not None:
            self._listener.close()

    def cut(self) -> None:
        """Drop all connections at once, as a failing network does. Clients may connect again."""
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`. Connections are counted before their TLS handshake."""
        await self.lifespan.startup()
        tls = self.config.ssl
        self.servers = [await serve(each, self.make_protocol, tls, self._places) for each in sockets or ()]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        closing = asyncio.create_task(self._abort_closing())
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    async def _abort_closing(self) -> None:
        """Abort connections that are still closing, because idle clients do not answer the end of TLS."""
        while True:
            await asyncio.sleep(_TLS_CLOSE_SECONDS)
            for connection in list(self.server_state.connections):
                transport = connection.transport
                if transport is not None and transport.is_closing():
                    transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers: the process has its own."""
        yield


def server(
    app: Starlette,
    listener: socket.socket | None,
    tls: Tls | None = None,
    *,
    most_connections: int = MOST_CONNECTIONS,
    upgrade: Upgrade | None = None,
    access_log: bool = False,
) -> HttpServer:
    """Return a server for the application, on a socket from `listen`. Raises `CannotListen` for a bad certificate.

    `upgrade` decides about requests for other protocols.
    """
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
    return HttpServer(config, listener, most_connections, upgrade)
