"""Classifies hosts as people write them: names or IP addresses."""

from __future__ import annotations

import ipaddress


def is_address(host: str) -> bool:
    """Return whether a host is an IP address. An address in brackets does not count."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_this_machine(host: str) -> bool:
    """Return whether a host is a loopback name or address, so that only this machine can reach it.

    An address may be in brackets.
    """
    bare = host.strip("[]").lower()
    return bare == "localhost" or (is_address(bare) and ipaddress.ip_address(bare).is_loopback)
