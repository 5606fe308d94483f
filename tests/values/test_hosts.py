from __future__ import annotations

import pytest

from oncebus.values.hosts import is_address, is_private_name, is_this_machine


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "fe80::1", "2001:db8::10.0.0.1"])
def test_these_are_addresses(host: str) -> None:
    assert is_address(host)


@pytest.mark.parametrize("host", ["", "localhost", "broker.example", "1.2.3", "1.2.3.256", "[::1]", "127.0.0.1:5300"])
def test_these_are_not_addresses(host: str) -> None:
    assert not is_address(host)


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"])
def test_only_this_machine_can_reach(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "broker"])
def test_other_machines_can_reach(host: str) -> None:
    assert not is_this_machine(host)


@pytest.mark.parametrize("host", ["emulator", "Emulator.", "host.docker.internal", "oncebus.shop.svc.cluster.local"])
def test_a_stranger_cannot_register_these_names(host: str) -> None:
    assert is_private_name(host)


@pytest.mark.parametrize("host", ["", ".", "evil.example", "evil.example.", "internal.example", "evil.xlocal"])
def test_a_stranger_may_have_registered_these_names(host: str) -> None:
    assert not is_private_name(host)
