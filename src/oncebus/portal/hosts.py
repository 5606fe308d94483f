"""The host names under which browsers may reach the portal.

A hostile site can point its own name at the broker (DNS rebinding). The Host header then contains that name. An IP
address cannot be redirected like that, so every IP address is accepted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from oncebus.hosts import is_address, is_private_name
from oncebus.http.requests import HOST


class Hosts:
    """The names of this broker: localhost, the machine's name, configured names, and IP addresses.

    With `private_names`, also all names that no stranger can have registered: other containers use such names.
    """

    def __init__(self, given: Iterable[str | None] = (), *, private_names: bool = False) -> None:
        self._private_names = private_names
        names = [socket.gethostname(), *(name for name in given if name)]
        self._names = {_plain(name) for name in names if _plain(name)}

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this broker."""
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = _plain(match["name"])
        if name == "localhost" or name.endswith(".localhost") or name in self._names or is_address(name):
            return True
        return self._private_names and is_private_name(name)


def port_of(host: str, scheme: str) -> int:
    """Return the port in a Host header, or the default port of the scheme."""
    match = HOST.fullmatch(host)
    if match is None or match["port"] is None:
        return 443 if scheme == "https" else 80
    return int(match["port"])


def _plain(name: str) -> str:
    return name.lower().strip("[]").rstrip(".")
