"""Connections that never begin or never complete their TLS handshake."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .attackers import crowd
from .gateways import running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

# A handshake takes about 100 KB, and there are at most as many at once as strangers are allowed.
EACH = 150 * 1024


@pytest.mark.parametrize("protocol", ["amqp", "http", "both"])
@pytest.mark.parametrize(
    "count", [pytest.param(300, id="300"), pytest.param(6000, id="6000", marks=pytest.mark.torture)]
)
def test_silent_connections_to_a_tls_port_take_little_memory(tmp_path: Path, protocol: str, count: int) -> None:
    more = ("--port", "0") if protocol == "both" else ()
    with (
        running_gateway(tmp_path, *more, tls=True) as gateway,
        victim(gateway, protocol) as somebody,
        crowd() as silent,
    ):
        watch = MemoryWatch(gateway.pid)
        asyncio.run(silent.connect(gateway.port_of(protocol), count))
        somebody.goes_on()
        print(f"{silent.alive} of {count} connections are open, {silent.refused} could not connect")
        watch.stays_below(min(count, 2000) * EACH + 10 * MEGABYTE, f"{count} silent connections")
