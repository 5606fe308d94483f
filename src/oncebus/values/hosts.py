"""Classifies hosts as people write them: names or IP addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_address(host: str) -> bool:
    """Return whether a host is an IP address. An address in brackets does not count."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_private_name(host: str) -> bool:
    """Return whether a host name cannot be one that a stranger has registered in the public DNS.

    Containers have names without a dot. `internal` and `local` are reserved for private networks: Docker's name for its
    host ends in the first, and Kubernetes' names of services end in the second.
    """
    bare = host.lower().rstrip(".")
    return bool(bare) and ("." not in bare or bare.endswith((".internal", ".local")))


def is_this_machine(host: str) -> bool:
    """Return whether a host is a loopback name or address, so that only this machine can reach it.

    An address may be in brackets.
    """
    bare = host.strip("[]").lower()
    return bare == "localhost" or (is_address(bare) and ipaddress.ip_address(bare).is_loopback)


def is_safe_url(url: str) -> bool:
    """Return whether a URL is https without a user, or http on this machine."""
    try:
        parts = urlsplit(url)
        has_user = parts.username is not None or parts.password is not None
    except ValueError:
        return False
    if not parts.hostname or has_user:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(parts.hostname))
