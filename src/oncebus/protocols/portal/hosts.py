"""The host names under which browsers may reach the portal.

A hostile site can point its own name at the broker (DNS rebinding). The Host header then contains that name. An IP
address cannot be redirected like that, so every IP address is accepted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from oncebus.protocols.http.requests import HOST
from oncebus.values.hosts import is_address, is_private_name, is_this_machine


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
        name = _name_in(host)
        if not name:
            return False
        if name == "localhost" or name.endswith(".localhost") or name in self._names or is_address(name):
            return True
        return self._private_names and is_private_name(name)

    def foreign(self, host: str, origin: str | None) -> str | None:
        """Return the host of a request, or of the web page that sent it, if it is not this broker's; else None.

        `origin` is the Origin header. The page may come from another port of a host, but an address counts only if it
        is this machine, or the address that the request names: anybody can serve a page from an address.
        """
        if not self.knows(host):
            return host
        if origin is None:
            return None
        page = origin.partition("://")[2]
        name = _name_in(page)
        is_other = is_address(name) and not is_this_machine(name) and name != _name_in(host)
        return page if is_other or not self.knows(page) else None


def port_of(host: str, scheme: str) -> int:
    """Return the port in a Host header, or the default port of the scheme."""
    match = HOST.fullmatch(host)
    if match is None or match["port"] is None:
        return 443 if scheme == "https" else 80
    return int(match["port"])


def _name_in(host: str) -> str:
    match = HOST.fullmatch(host)
    return "" if match is None else _plain(match["name"])


def _plain(name: str) -> str:
    return name.lower().strip("[]").rstrip(".")
