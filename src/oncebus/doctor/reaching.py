"""Checks that something listens at the address of a Spark master, because Spark itself tries for a minute or longer."""

from __future__ import annotations

import re
import socket
from urllib.parse import unquote, urlsplit

from oncebus.doctor.findings import Finding, failure

_SECONDS = 5.0
_PORTS = {"sc": 15002, "spark": 7077, "https": 443, "http": 80}
_SHORT = 3
_PARAMETERS = re.compile("[;?#]")


def addresses(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in the URL of a master or of Spark Connect; none for other kinds, like `local[2]`."""
    url = hide_parameters(url)
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


def hide_parameters(url: str) -> str:
    """Return the URL without its parameters: that of Spark Connect may hold a token."""
    return _PARAMETERS.split(url, maxsplit=1)[0].rstrip("/")


def without_parameters(text: str, url: str) -> str:
    """Return a text, such as that of an error, with … in place of the URL's parameters and of their values."""
    _, *parameters = _PARAMETERS.split(url, maxsplit=1)
    hidden = set(parameters)
    for parameter in re.split("[;&]", "".join(parameters)):
        name, equals, value = parameter.partition("=")
        hidden.add(value if equals else name)
    hidden |= {unquote(each) for each in hidden}
    # Errors quote values, and the host of a URL is in lower case.
    hidden |= {repr(each)[1:-1] for each in hidden}
    # A short value, such as a user's name, may also be part of an ordinary word.
    patterns = [
        re.escape(each) if len(each) > _SHORT else rf"(?<!\w){re.escape(each)}(?!\w)"
        for each in sorted(filter(None, hidden), key=len, reverse=True)
    ]
    return re.sub("|".join(patterns), "…", text, flags=re.IGNORECASE) if patterns else text


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
    return failure(
        "Spark",
        f"'{hide_parameters(url)}' cannot be reached ({'; '.join(problems)})",
        f"Start it, or correct {option}.",
    )
