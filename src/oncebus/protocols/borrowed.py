"""The names of asyncio that we use although they are not public.

No other module uses such a name. Each function says what we need it for and why no public name does the same. A test
for each name fails when Python no longer has it. What we use of uvicorn is in `oncebus.protocols.http.borrowed`, so
that programs without HTTP do not load it.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto

TLS_BUFFER_BYTES = 32 * 1024
"""The read buffer of a TLS connection. The default of asyncio is 256 KB, allocated when the connection is made."""


class _Tls(sslproto.SSLProtocol):
    max_size = TLS_BUFFER_BYTES


def begin_tls(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    context: ssl.SSLContext,
    handshake_seconds: int,
    ended: asyncio.Future[None],
) -> None:
    """Begin the TLS handshake of a server on a connection. `protocol` gets a transport once it succeeds.

    `ended` gets the result, or the exception of a failed handshake. The public `start_tls` would pass the first bytes
    on before the protocol has its transport, and has no way to choose the size of the buffer.
    """
    encrypted = _Tls(
        asyncio.get_running_loop(),
        protocol,
        context,
        ended,
        server_side=True,
        ssl_handshake_timeout=handshake_seconds,
    )
    transport.set_protocol(encrypted)
    encrypted.connection_made(transport)


def limit_read(transport: asyncio.Transport, most: int | None) -> None:
    """Limit the bytes that a socket's transport reads in one turn of the event loop; None for asyncio's own limit.

    Transports of other kinds have no such limit. asyncio has no public way to change its 256 KB.
    """
    if isinstance(getattr(transport, "max_size", None), int):
        transport.max_size = most or type(transport).max_size  # type: ignore[attr-defined]


def limit_read_ahead(transport: asyncio.Transport, most: int) -> None:
    """Limit the bytes that a transport with TLS keeps while nobody reads them.

    Transports of other kinds keep none. Only the class of these transports has the method; no public class does.
    """
    if hasattr(transport, "set_read_buffer_limits"):
        transport.set_read_buffer_limits(most)
