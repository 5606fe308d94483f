"""Connections that never begin or never complete their TLS handshake."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from .attackers import crowd
from .gateways import running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

# A handshake takes about 100 KB, and there are at most as many at once as strangers are allowed.
EACH = 150 * 1024


PROTOCOLS = ("amqp", "http", "both")


@pytest.mark.parametrize(
    "count", [pytest.param(100, id="100"), pytest.param(2000, id="2000", marks=pytest.mark.torture)]
)
def test_silent_connections_to_tls_ports_take_little_memory(tmp_path: Path, count: int) -> None:
    queues: list[dict[str, object]] = [{"type": "queue", "name": protocol} for protocol in PROTOCOLS]
    with running_gateway(tmp_path, "--port", "0", entities=queues, tls=True) as gateway, ExitStack() as stack:
        victims = [stack.enter_context(victim(gateway, protocol, queue=protocol)) for protocol in PROTOCOLS]
        silent = stack.enter_context(crowd())
        watch = MemoryWatch(gateway.pid)
        for protocol in PROTOCOLS:
            asyncio.run(silent.connect(gateway.port_of(protocol), count))
        for somebody in victims:
            somebody.goes_on()
        made = count * len(PROTOCOLS)
        print(f"{silent.alive} of {made} connections are open, {silent.refused} could not connect")
        watch.stays_below(min(made, 2000) * EACH + 10 * MEGABYTE, f"{made} silent connections")
