"""By which names a browser may know the portal.

A page of somebody else's whose name was made to lead here (DNS rebinding) shows in the Host header. An address in
numbers cannot be made to lead elsewhere, so any of them is good.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from oncebus.hosts import is_address

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


class Hosts:
    """The names of this broker: localhost, the machine's own, those it was given, and addresses in numbers."""

    def __init__(self, given: Iterable[str | None] = ()) -> None:
        names = [socket.gethostname(), *(name for name in given if name)]
        self._names = {_plain(name) for name in names if _plain(name)}

    def knows(self, host: str) -> bool:
        """Whether a Host header names us."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _plain(match["name"])
        return name == "localhost" or name.endswith(".localhost") or name in self._names or is_address(name)


def port_of(host: str, scheme: str) -> int:
    """The port in a Host header, or the scheme's own."""
    match = _HOST.fullmatch(host)
    if match is None or match["port"] is None:
        return 443 if scheme == "https" else 80
    return int(match["port"])


def _plain(name: str) -> str:
    return name.lower().strip("[]").rstrip(".")
