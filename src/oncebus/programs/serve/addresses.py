"""The addresses of a broker: its sockets, its URL, the address of clients, and the file that tells commands of them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from oncebus.model.access import AuthorizationRule, connection_string
from oncebus.protocols.listening import listen
from oncebus.values import disk
from oncebus.values.settings import Settings, flag

USUAL_AMQP_PORT = 5672
"""The port that clients without TLS use if the connection string names none."""
USUAL_AMQPS_PORT = 5671
"""The port that clients with TLS use if the connection string names none."""
_NOTE = "address"
_CLIENT_NOTE = "client-address"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_THIS_MACHINE = {"127.0.0.1": "localhost", "::1": "localhost"}


class Sockets(NamedTuple):
    """The listening sockets of a gateway. Under `serve` they outlive the gateway process.

    `both` serves AMQP and HTTP. It may be the same socket as one of the others, or as both.
    """

    http: socket.socket
    amqp: socket.socket
    both: socket.socket | None = None

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open the sockets at the addresses in the settings. Raises `CannotListen`."""
        amqp = "amqps_port" if settings.is_encrypted else "amqp_port"
        with contextlib.ExitStack() as stack:
            opened: dict[int, socket.socket] = {}

            def listening(name: str) -> socket.socket:
                port = getattr(settings, name)
                if port not in opened:
                    # Each port 0 is a different one.
                    made = stack.enter_context(listen(settings.host, port, flag(name)))
                    opened[port or made.getsockname()[1]] = made
                    return made
                return opened[port]

            both = listening("port") if settings.port is not None else None
            sockets = cls(listening("http_port"), listening(amqp), both)
            stack.pop_all()
            return sockets

    @classmethod
    def of_descriptors(cls, http: int, amqp: int, both: int | None = None) -> Self:
        """Return the sockets for descriptors that another process has opened and passed on."""
        made = {number: socket.socket(fileno=number) for number in {http, amqp, both} if number is not None}
        return cls(made[http], made[amqp], None if both is None else made[both])

    @property
    def descriptors(self) -> dict[str, int]:
        """Return the arguments of `of_descriptors`, by name."""
        named = {"http": self.http, "amqp": self.amqp, "both": self.both}
        return {name: each.fileno() for name, each in named.items() if each is not None}

    def close(self) -> None:
        """Close all sockets."""
        for each in self:
            if each is not None:
                each.close()

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports, by name, for the log."""
        named = {"http_port": self.http, "amqp_port": self.amqp, "port": self.both}
        return {name: int(each.getsockname()[1]) for name, each in named.items() if each is not None}

    @property
    def client_port(self) -> int:
        """Return the port in connection strings."""
        return int((self.both or self.amqp).getsockname()[1])

    def url(self, settings: Settings) -> str:
        """Return the URL for HTTP."""
        scheme = "https" if settings.is_encrypted else "http"
        return f"{scheme}://{in_brackets(host_of(settings))}:{(self.both or self.http).getsockname()[1]}"


def host_of(settings: Settings) -> str:
    """Return the host under which this machine reaches the broker."""
    host = settings.host.strip("[]")
    return _EVERYWHERE.get(host, host)


def client_host(settings: Settings) -> str:
    """Return the host for connection strings.

    For this machine it is `localhost`: clients recognize only that name as local.
    """
    host = host_of(settings)
    return _THIS_MACHINE.get(host, host)


def in_brackets(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


class ClientAddress(NamedTuple):
    """The place that connection strings name. Without a port it is the usual one."""

    host: str
    port: int | None
    is_encrypted: bool

    @classmethod
    def of(cls, settings: Settings, port: int) -> ClientAddress:
        """Return the address of a broker that listens at this port.

        With TLS, Python's client always connects to port 5671. If the broker uses another port, forward 5671 to it.
        A port that serves everything is always named, because administration clients use another port by default.
        """
        usual = USUAL_AMQPS_PORT if settings.is_encrypted else USUAL_AMQP_PORT
        is_usual = settings.port is None and port == usual
        return cls(client_host(settings), None if is_usual else port, settings.is_encrypted)

    @classmethod
    def parse(cls, url: str) -> ClientAddress:
        """Return the address whose text is `url`."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port, parts.scheme == "amqps")

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"amqp{'s' if self.is_encrypted else ''}://{in_brackets(self.host)}{port}"

    def connection_string(self, rule: AuthorizationRule) -> str:
        """Return the connection string for clients. Without TLS it is in the emulator's form, which they understand."""
        return connection_string(self.host, self.port, rule, emulator=not self.is_encrypted)


def write_addresses(data: Path, url: str, client: ClientAddress | None = None) -> None:
    """Write the gateway's URL, and the address of clients, to the data folder, where commands find them.

    Failures are ignored.
    """
    # The URL comes last: once it is there, the gateway is open.
    for name, content in ((_CLIENT_NOTE, client), (_NOTE, url)):
        temporary = data / f".{name}"
        # On a full disk the gateway still runs; commands then need --url.
        with contextlib.suppress(OSError):
            temporary.write_text(f"{content or ''}\n")
            disk.replace(temporary, data / name)


def forget_addresses(data: Path) -> None:
    """Remove the gateway's addresses from the data folder."""
    for name in (_NOTE, _CLIENT_NOTE):
        with contextlib.suppress(OSError):
            disk.delete(data / name)


def read_url(data: Path) -> str | None:
    """Return the URL of the gateway that uses a data folder; None if it has stopped.

    After a kill, the old URL remains.
    """
    return _read_note(data / _NOTE)


def read_client_address(data: Path) -> ClientAddress | None:
    """Return the address of clients in the same way as `read_url`."""
    found = _read_note(data / _CLIENT_NOTE)
    return None if found is None else ClientAddress.parse(found)


def _read_note(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
