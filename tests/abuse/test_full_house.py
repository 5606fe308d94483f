"""The maximum number of client connections, most of them idle, and more strangers than the gateway allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.protocols.servicebus.limits import AmqpLimits

from .gateways import running_gateway
from .house import Role, full_of
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

EACH = 100 * 1024
"""The bytes of memory that one connection may take."""
ROUNDS = 300


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that is not exceeded by the given fraction of the values."""
    return sorted(values)[max(0, round(share * len(values)) - 1)]


@pytest.mark.parametrize(
    ("clients", "receivers", "strangers", "rounds"),
    [
        pytest.param(50, 20, 50, 20, id="50"),
        # A victim has one connection, and two while it changes to a new one.
        pytest.param(AmqpLimits().connections - 4, 2000, 5000, ROUNDS, id="5000", marks=pytest.mark.torture),
    ],
)
def test_no_send_fails_in_a_full_house(
    tmp_path: Path, clients: int, receivers: int, strangers: int, rounds: int
) -> None:
    idle: list[dict[str, object]] = [{"type": "queue", "name": "idle"}]
    with (
        running_gateway(tmp_path, entities=idle) as gateway,
        victim(gateway) as one,
        victim(gateway, "http", queue="noisy") as other,
    ):
        watch = MemoryWatch(gateway.pid)
        with (
            full_of(gateway, Role.RECEIVER, receivers, "idle") as waiting,
            full_of(gateway, Role.SIGNED_IN, clients - receivers) as signed_in,
            full_of(gateway, Role.STRANGER, strangers) as unknown,
        ):
            assert gateway.http.metric("amqp_connections") >= clients
            began = len(one.sends), len(other.sends)
            one.goes_on(rounds)
            other.goes_on(rounds // 10)
            connections = gateway.http.metric("amqp_connections")
        sends = one.sends[began[0] :], other.sends[began[1] :]
        for protocol, seconds in zip(("AMQP", "HTTP"), sends, strict=True):
            p50, p99 = (1000 * percentile(seconds, share) for share in (0.5, 0.99))
            print(f"{len(seconds)} sends over {protocol}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        print(f"{connections} connections; strangers were cut {unknown.cut} times")
        assert (waiting.cut, signed_in.cut) == (0, 0)
        limit = (clients + min(strangers, AmqpLimits().strangers)) * EACH + 50 * MEGABYTE
        watch.stays_below(limit, f"{clients} clients, {receivers} of them receivers, and {strangers} strangers")
