"""Strangers that open WebSockets, at the port of HTTP and at a port that serves everything."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest

from oncebus.amqp.limits import UNTRUSTED_MESSAGE_BYTES, UNTRUSTED_MESSAGES

from .attackers import crowd
from .gateways import Gateway, running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

DESCRIPTORS = 1024
"""With this few descriptors there are about 170 places for strangers, so a small crowd takes them all."""
COUNT = 300
EACH = 200 * 1024
"""The bytes of memory that one WebSocket may take: a connection, and a message that never ends."""
HANDSHAKE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)
UNFINISHED = struct.pack("!BBQ", 0x82, 0x80 | 127, UNTRUSTED_MESSAGE_BYTES) + bytes(UNTRUSTED_MESSAGE_BYTES - 1)
EMPTY = b"\x82\x80" + bytes(4)
PING = b"\x89\x80" + bytes(4)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Yield one gateway for all attacks here, because its start takes longer than they do."""
    with running_gateway(tmp_path_factory.mktemp("gateway"), "--port", "0", descriptors=DESCRIPTORS) as running:
        yield running


@pytest.mark.parametrize(
    ("protocol", "first"),
    [
        pytest.param("http", HANDSHAKE[:-2], id="half a handshake"),
        pytest.param("both", HANDSHAKE, id="silent"),
        pytest.param("http", HANDSHAKE + UNFINISHED, id="a message that never ends"),
        pytest.param("both", HANDSHAKE + EMPTY * (UNTRUSTED_MESSAGES - 1), id="many empty frames"),
        pytest.param("http", HANDSHAKE + PING * 20_000, id="far more pings than allowed"),
        pytest.param("both", b"AMQ", id="half of the first bytes"),
    ],
)
def test_a_crowd_of_strangers_takes_little_memory_and_others_go_on(
    gateway: Gateway, protocol: str, first: bytes
) -> None:
    with victim(gateway, protocol) as somebody, crowd() as strangers:
        watch = MemoryWatch(gateway.pid)
        asyncio.run(strangers.connect(gateway.port_of(protocol), COUNT, first))
        somebody.goes_on()
        print(f"{strangers.alive} of {COUNT} connections are open, {strangers.refused} could not connect")
        watch.stays_below(COUNT * EACH + 10 * MEGABYTE, f"{COUNT} strangers")
