"""Where a broker listens, and how others are told."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import NamedTuple, Self

from oncebus.listening import listen
from oncebus.settings import Settings, flag

USUAL_AMQP_PORT = 5672
"""Where clients without TLS go that are told no port."""
USUAL_AMQPS_PORT = 5671
"""And those with TLS."""
_NOTE = "address"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_THIS_MACHINE = {"127.0.0.1": "localhost", "::1": "localhost"}


class Sockets(NamedTuple):
    """What a gateway listens at. They may outlive it."""

    http: socket.socket
    amqp: socket.socket

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Listen where the settings say. Raises `CannotListen`."""
        http = listen(settings.host, settings.http_port, flag("http_port"))
        try:
            amqp = "amqps_port" if settings.is_encrypted else "amqp_port"
            return cls(http, listen(settings.host, getattr(settings, amqp), flag(amqp)))
        except BaseException:
            http.close()
            raise

    def close(self) -> None:
        """Listen no more."""
        for each in self:
            each.close()

    @property
    def amqp_port(self) -> int:
        """The port for AMQP."""
        return int(self.amqp.getsockname()[1])


def host_of(settings: Settings) -> str:
    """The host by which this machine reaches the broker."""
    host = settings.host.strip("[]")
    return _EVERYWHERE.get(host, host)


def client_host(settings: Settings) -> str:
    """The host in connection strings: clients know this machine by its name alone."""
    host = host_of(settings)
    return _THIS_MACHINE.get(host, host)


def url_of(settings: Settings, bound: socket.socket) -> str:
    """The address for HTTP."""
    scheme = "https" if settings.is_encrypted else "http"
    return f"{scheme}://{in_brackets(host_of(settings))}:{bound.getsockname()[1]}"


def in_brackets(host: str) -> str:
    """The host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def write_url(data: Path, url: str) -> None:
    """Note in the data folder where the gateway listens, for the commands that ask it."""
    temporary = data / f".{_NOTE}"
    # On a full disk the commands have to be told with --url.
    with contextlib.suppress(OSError):
        temporary.write_text(f"{url}\n")
        os.replace(temporary, data / _NOTE)


def forget_url(data: Path) -> None:
    """The gateway does not listen any more."""
    with contextlib.suppress(OSError):
        (data / _NOTE).unlink(missing_ok=True)


def read_url(data: Path) -> str | None:
    """Where the gateway over a data folder listens, or did when it was killed; None if it has stopped."""
    try:
        return (data / _NOTE).read_text().strip() or None
    except OSError:
        return None
