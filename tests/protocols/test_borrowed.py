"""Python still has each name of asyncio that `oncebus.protocols.borrowed` uses."""

from __future__ import annotations

import asyncio
import inspect
import platform
import socket
import ssl
from asyncio import sslproto

import pytest

from oncebus.protocols.borrowed import TLS_BUFFER_BYTES, begin_tls, limit_read, limit_read_ahead

PYTHON = f"Python {platform.python_version()}"


class Encrypting(asyncio.Protocol):
    """Begins TLS as soon as it is connected, and keeps the protocol that takes over."""

    def __init__(self) -> None:
        self.protocol: asyncio.BaseProtocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended.add_done_callback(lambda future: future.exception())
        begin_tls(transport, asyncio.Protocol(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 10, ended)
        self.protocol = transport.get_protocol()


def test_asyncio_has_a_protocol_for_tls() -> None:
    taken = inspect.signature(sslproto.SSLProtocol).parameters
    for name in ("loop", "app_protocol", "sslcontext", "waiter", "server_side", "ssl_handshake_timeout"):
        assert name in taken, f"asyncio.sslproto.SSLProtocol of {PYTHON} no longer takes {name}"


def test_asyncio_takes_the_size_of_the_buffer_for_tls() -> None:
    async def connect() -> memoryview:
        left, right = socket.socketpair()
        with right:
            transport, made = await asyncio.get_running_loop().create_connection(Encrypting, sock=left)
            try:
                assert isinstance(made.protocol, sslproto.SSLProtocol)
                return made.protocol.get_buffer(-1)
            finally:
                transport.abort()

    size = len(asyncio.run(connect()))
    assert size == TLS_BUFFER_BYTES, f"asyncio.sslproto.SSLProtocol of {PYTHON} no longer has max_size"


def test_asyncio_takes_the_size_of_a_read() -> None:
    async def connect() -> None:
        left, right = socket.socketpair()
        with right:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=left)
            try:
                before = getattr(transport, "max_size", None)
                assert isinstance(before, int), f"The transports of asyncio in {PYTHON} no longer have max_size"
                limit_read(transport, 4096)
                assert getattr(transport, "max_size", None) == 4096
                limit_read(transport, None)
                assert getattr(transport, "max_size", None) == before
            finally:
                transport.abort()

    asyncio.run(connect())


def test_asyncio_limits_what_a_transport_with_tls_keeps() -> None:
    name = "set_read_buffer_limits"
    transport = sslproto._SSLProtocolTransport
    assert hasattr(transport, name), f"The transport of asyncio for TLS in {PYTHON} no longer has {name}"


@pytest.mark.parametrize("limit", [limit_read, limit_read_ahead])
def test_transports_of_other_kinds_have_no_limits(limit: object) -> None:
    assert callable(limit)
    limit(asyncio.Transport(), 4096)
