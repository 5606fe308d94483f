"""More connections than the process has descriptors."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .attackers import crowd
from .gateways import running_gateway
from .memory import descriptors
from .victims import victim

ALLOWED = 1024
LINES = 50


def test_with_few_descriptors_strangers_stop_nobody(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, descriptors=ALLOWED) as gateway,
        victim(gateway) as one,
        victim(gateway, "http", queue="noisy") as other,
    ):
        for protocol in ("amqp", "http"):
            with crowd() as strangers:
                asyncio.run(strangers.connect(gateway.port_of(protocol), 2 * ALLOWED))
                one.goes_on()
                other.goes_on()
                print(f"{descriptors(gateway.pid)} descriptors of {ALLOWED}, {len(gateway.log())} lines in the log")
                assert descriptors(gateway.pid) < ALLOWED - 100
        assert len(gateway.log()) < LINES
