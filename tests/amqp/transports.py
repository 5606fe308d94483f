"""The transport between an engine and a client of its tests: a socket, or a WebSocket without its handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from oncebus.protocols.servicebus.transport import AmqpProtocol
from oncebus.protocols.servicebus.websocket import WebSocket

_is_websocket = False


@contextmanager
def websockets() -> Iterator[None]:
    """Connect over WebSockets in the block."""
    global _is_websocket
    _is_websocket = True
    try:
        yield
    finally:
        _is_websocket = False


def is_websocket() -> bool:
    """Return whether connections are WebSockets."""
    return _is_websocket


def on_transport(protocol: AmqpProtocol) -> asyncio.Protocol:
    """Return the protocol for a connection that the server accepts."""
    return WebSocket(protocol) if _is_websocket else protocol
