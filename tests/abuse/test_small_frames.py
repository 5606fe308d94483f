"""Small legal frames without a pause, from strangers and from one client that may only send.

A bound on bytes does not bound these: a few bytes of them are as much work as a message.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.model.access import Right

from .flood import FRAMES
from .floods import flooded, probing
from .gateways import Gateway, running_gateway
from .victims import victim

ROUNDS = 10


def attack(gateway: Gateway, kind: str, count: int, is_known: bool) -> None:
    rule = gateway.rule("only-sends", Right.SEND) if is_known else None
    with victim(gateway) as somebody, flooded(gateway, kind, count, rule), probing(gateway) as probe:
        before = len(somebody.rounds)
        somebody.goes_on(ROUNDS)
        slowest = max(somebody.rounds[before:])
    who = "clients that may only send" if is_known else "strangers"
    print(f"{kind} of {count} {who}: the slowest round {slowest:.2f} s, health {probe.slowest:.2f} s")
    assert probe.seconds


def test_others_go_on(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        attack(gateway, "begin-end", 10, is_known=False)
        attack(gateway, "refused-attach", 1, is_known=True)


@pytest.mark.torture
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("kind", FRAMES)
def test_others_go_on_during_each_attack(tmp_path: Path, kind: str, tls: bool) -> None:
    with running_gateway(tmp_path, tls=tls) as gateway:
        for count, is_known in ((10, False), (40, False), (1, True), (10, True)):
            attack(gateway, kind, count, is_known)
