"""Hosts as people write them: names, or addresses in numbers."""

from __future__ import annotations

import ipaddress


def is_address(host: str) -> bool:
    """Whether a host is an address in numbers; one in brackets is not."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_this_machine(host: str) -> bool:
    """Whether only this machine can reach what listens at a host, which may be in brackets."""
    bare = host.strip("[]").lower()
    return bare == "localhost" or (is_address(bare) and ipaddress.ip_address(bare).is_loopback)
