"""Attackers: crowds of plain sockets, and AMQP connections that say exactly what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

from amqp.sockets import Socket
from oncebus import amqp
from oncebus.access import AuthorizationRule
from oncebus.amqp import Described, Symbol, ULong
from oncebus.amqp.frames import SASL_FRAME, SASL_HEADER, frame

from .gateways import Gateway

_SASL_INIT = ULong(0x41)
_AT_ONCE = 100
CONNECT_SECONDS = 5.0


class Crowd:
    """Very many connections of strangers. They read only when asked to, and cost the test nearly nothing."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.refused = 0
        """How many could not connect in time."""

    async def connect(self, port: int, count: int, first: bytes = b"") -> None:
        """Open so many more connections; each says `first`."""
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
        """Say this on every connection that is still open and takes it."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.send(data)

    @property
    def alive(self) -> int:
        """How many the gateway has not hung up."""
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
        """Go."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()


@contextlib.contextmanager
def crowd() -> Iterator[Crowd]:
    """A crowd for the block."""
    made = Crowd()
    try:
        yield made
    finally:
        made.close()


def allow_descriptors() -> None:
    """Let this process have as many descriptors as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def signing_in(name: str, key: str) -> bytes:
    """What a client says first: SASL PLAIN with a key."""
    response = b"\0" + name.encode() + b"\0" + key.encode()
    return SASL_HEADER + frame(0, amqp.encode(Described(_SASL_INIT, [Symbol("PLAIN"), response])), SASL_FRAME)


@contextlib.asynccontextmanager
async def amqp_connection(
    port: int, rule: tuple[str, str] | None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Socket]:
    """A connection with one session, signed in with the name and key of a rule; of a stranger without."""
    name = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        made = Socket(reader, writer)
        if rule is not None:
            await made.say(signing_in(*rule))
            assert await made.header() == SASL_HEADER
            # The mechanisms, and the outcome: what follows fails if that is a refusal.
            await made.raw_frame()
            await made.raw_frame()
        await made.opened()
        yield made
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def attacker(gateway: Gateway, rule: AuthorizationRule | None = None) -> AsyncIterator[Socket]:
    """An AMQP connection to the gateway, without TLS; of a stranger unless a rule is given."""
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
