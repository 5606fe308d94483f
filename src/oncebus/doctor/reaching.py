"""Checks that something listens at the address of a Spark master, because Spark itself tries for a minute or longer."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from oncebus.doctor.findings import Finding, failed

_SECONDS = 5.0
_PORTS = {"sc": 15002, "spark": 7077, "https": 443, "http": 80}


def addresses(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in the URL of a master or of Spark Connect; none for other kinds, like `local[2]`."""
    scheme, found, rest = url.removeprefix("k8s://").partition("://")
    if not found:
        scheme, rest = "https", scheme
        if not url.startswith("k8s://"):
            return []
    if scheme not in _PORTS:
        return []
    hosts = rest.partition("/")[0].split(",")
    return [pair for host in hosts if (pair := _address(f"{scheme}://{host}", _PORTS[scheme])) is not None]


def _address(url: str, port: int) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or port) if parts.hostname else None
    except ValueError:
        return None


def shown(url: str) -> str:
    """Return the URL without its parameters: that of Spark Connect may hold a token."""
    return url.partition(";")[0].rstrip("/")


def reaching_finding(url: str, option: str) -> Finding | None:
    """Return a failed finding if nothing listens at the URL, else None."""
    problems = []
    for host, port in addresses(url):
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
            return None
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
    if not problems:
        return None
    return failed(
        "Spark", f"'{shown(url)}' cannot be reached ({'; '.join(problems)})", f"Start it, or correct {option}."
    )
