"""Attackers: crowds of plain sockets, and AMQP connections that send exactly what a test needs."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.types import Described, Symbol, ULong
from oncebus.model.access import AuthorizationRule
from tests.amqp.sockets import Socket

from .gateways import Gateway

_SASL_INIT = ULong(0x41)
_AT_ONCE = 100
CONNECT_SECONDS = 5.0


class Crowd:
    """Very many unauthenticated connections. They read only on demand, and cost the test almost nothing."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.refused = 0
        """The number of connections that could not be opened in time."""

    async def connect(self, port: int, count: int, first: bytes = b"") -> None:
        """Open this many more connections. Each sends `first`."""
        allow_descriptors()
        turns = asyncio.Semaphore(_AT_ONCE)
        loop = asyncio.get_running_loop()

        async def one() -> None:
            async with turns:
                made = socket.socket()
                made.setblocking(False)
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await loop.sock_connect(made, ("127.0.0.1", port))
                        if first:
                            await loop.sock_sendall(made, first)
                except (OSError, TimeoutError):
                    self.refused += 1
                    made.close()
                else:
                    self.sockets.append(made)

        await asyncio.gather(*(one() for _ in range(count)))

    def say(self, data: bytes) -> None:
        """Send data on every connection that is still open and writable."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.send(data)

    @property
    def alive(self) -> int:
        """Return the number of connections that the gateway has not closed."""
        return sum(_is_open(each) for each in self.sockets)

    def forget_closed(self) -> None:
        """Close the sockets that the gateway has closed: a process may have only so many."""
        still_open = []
        for each in self.sockets:
            if _is_open(each):
                still_open.append(each)
            else:
                each.close()
        self.sockets = still_open

    def close(self) -> None:
        """Close all connections."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()


@contextlib.contextmanager
def crowd() -> Iterator[Crowd]:
    """Yield a crowd, and close it after the block."""
    made = Crowd()
    try:
        yield made
    finally:
        made.close()


def allow_descriptors() -> None:
    """Raise this process's limit of open descriptors to the maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def signing_in(name: str, key: str) -> bytes:
    """Return the first bytes of a client: SASL PLAIN with a key."""
    response = b"\0" + name.encode() + b"\0" + key.encode()
    return SASL_HEADER + frame(0, encode(Described(_SASL_INIT, [Symbol("PLAIN"), response])), SASL_FRAME)


@contextlib.asynccontextmanager
async def amqp_connection(
    port: int, rule: tuple[str, str] | None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Socket]:
    """Open a connection with one session. It authenticates with the name and key of a rule, if given."""
    name = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        made = Socket(reader, writer)
        if rule is not None:
            await made.say(signing_in(*rule))
            assert await made.header() == SASL_HEADER
            # Read the mechanisms and the outcome. If the outcome is a refusal, the next step fails.
            await made.raw_frame()
            await made.raw_frame()
        await made.opened()
        yield made
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def attacker(gateway: Gateway, rule: AuthorizationRule | None = None) -> AsyncIterator[Socket]:
    """Yield an AMQP connection to the gateway, without TLS. It authenticates only if a rule is given."""
    key = None if rule is None else (rule.name, rule.primary_key)
    async with amqp_connection(gateway.amqp_port, key) as made:
        yield made


def _is_open(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
