"""Listens for connections and accepts them. Every connection is counted before it may begin TLS.

asyncio's own TLS server does not report a connection before its handshake is complete. It waits a minute for that, and
meanwhile each connection costs 300 KB.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from oncebus.protocols.borrowed import begin_tls
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10
"""The time limit for the TLS handshake of a connection."""
FIRST_BYTES_SECONDS = 10
"""The time limit for the first bytes of a connection to a port of several protocols."""
ACCEPTED_AT_ONCE = 64
"""Connections that one turn of the event loop accepts at each port, at most."""
_TURNS_TO_SPEAK = 16
"""At least this many rounds of accepting pass before a new connection can be the longest idle one."""
BACKLOG = 1024
"""Connections that the system queues until they are accepted."""
SECONDS_BETWEEN_WARNINGS = 10.0
PROBE_AFTER_SECONDS = 30
"""The system asks a silent peer for a sign of life after this time (TCP keep-alive)."""
PROBE_EVERY_SECONDS = 5
"""The interval of these questions until the peer answers."""
UNACKNOWLEDGED_SECONDS = 50
"""A connection whose peer acknowledges neither data nor questions for this time is lost. AMQP sets its own time."""
STRANGERS_PART = 8
"""While fewer than one in this many guests have not authenticated, they do not give way to new ones."""
_STRANGERS = ""
"""The key of guests that have not authenticated."""


class CannotListen(OncebusError):
    """The address is not available, or the certificate cannot be used."""


class Tls(NamedTuple):
    """A certificate chain and its private key, both in PEM format."""

    certificate: Path
    key: Path


def listen(host: str, port: int, flag: str | None = None) -> socket.socket:
    """Return a listening socket. Port 0 picks a free one.

    Raises `CannotListen`. The error names `flag` as the way to set another port.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        # A socket made from a descriptor knows that its protocol is TCP. Only then does asyncio set TCP_NODELAY.
        listener = socket.socket(fileno=made.detach())
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "the port is in use. Stop the program that uses it, or choose another port"
            reason += f" with {flag}" if flag is not None else ""
        raise CannotListen(f"Cannot listen at {host}, port {port}: {reason}.") from error
    listener.setblocking(False)
    _notice_vanished_peers(listener)
    return listener


def limit_unacknowledged(connection: socket.socket, seconds: float) -> None:
    """Let the system end a connection whose peer acknowledges nothing, or leaves no room for data, for this time."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def _notice_vanished_peers(listener: socket.socket) -> None:
    """Turn on TCP keep-alive: a client that waits for an answer is silent, like one whose network is gone.

    Accepted connections inherit the options of the listener.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of these.
    if hasattr(socket, "TCP_KEEPIDLE"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_SECONDS)
    if hasattr(socket, "TCP_KEEPINTVL"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_SECONDS)
    limit_unacknowledged(listener, UNACKNOWLEDGED_SECONDS)


class Guest(Protocol):
    """A connection that takes one of the `Places`."""

    def abort(self) -> None:
        """Close the connection at once."""


@dataclass(slots=True)
class _Group:
    """The guests with one key. Those that can give way are there with how they do it, the longest idle first."""

    size: int = 0
    yielding: dict[Guest, Callable[[], None]] = field(default_factory=dict)


class Places:
    """Limits the number of connections. When all places are taken, a guest gives way to each new connection.

    Guests that have not authenticated give way first, unless they are few: a new client needs a moment to speak. Then
    come those of the key with the most places, so keys share the places, and one key alone may use them all. `what`
    names the kind of connection in the log. `clock` returns seconds and never goes back.
    """

    def __init__(self, most: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._what = what
        self._clock = clock
        self._keys: dict[Guest, str] = {}
        self._groups: dict[str, _Group] = {}
        # Guests that came when nobody could give way.
        self._extra: set[Guest] = set()
        self._warned = -SECONDS_BETWEEN_WARNINGS

    def __len__(self) -> int:
        return len(self._keys)

    def enter(self, guest: Guest) -> None:
        """Take a place for an idle guest. If all are taken and nobody can give way, it is counted beyond the limit."""
        if len(self) >= self.most and not self._make_room():
            self._extra.add(guest)
        self._join(guest, _STRANGERS)
        self.end(guest)

    def know(self, guest: Guest, key: str) -> bool:
        """Record the key of a guest.

        Return False if the guest should leave: it is beyond the limit, and its key has its share of the places already.
        """
        if guest not in self._keys:
            return True
        if self._keys[guest] != key:
            give_way = self._leave_group(guest)
            self._join(guest, key)
            if give_way is not None:
                self.end(guest, give_way)
        if len(self) <= self.most:
            self._extra.discard(guest)
        keys = len(self._groups) - (_STRANGERS in self._groups)
        return guest not in self._extra or self._groups[key].size <= self.most // keys

    def begin(self, guest: Guest) -> None:
        """Record that a guest is busy, so that it does not give way."""
        if guest in self._keys:
            self._groups[self._keys[guest]].yielding.pop(guest, None)

    def end(self, guest: Guest, give_way: Callable[[], None] | None = None) -> None:
        """Record that a guest can give way. If others need its place, `give_way` is called, or its `abort`."""
        if guest in self._keys:
            self._groups[self._keys[guest]].yielding.setdefault(guest, give_way or guest.abort)

    def leave(self, guest: Guest) -> None:
        """Free the place of a guest, if it has one."""
        if guest in self._keys:
            self._leave_group(guest)
            del self._keys[guest]
            self._extra.discard(guest)

    def close(self) -> None:
        """Close the connections of all guests."""
        for guest in list(self._keys):
            self.leave(guest)
            guest.abort()

    def _make_room(self) -> bool:
        """Let one guest give way. Return False if all are busy."""
        self._warn()
        groups = {key: group for key, group in self._groups.items() if group.yielding}
        strangers = groups.pop(_STRANGERS, None)
        chosen = max(groups.values(), key=lambda group: group.size, default=None)
        if strangers is not None and (chosen is None or strangers.size > self.most // STRANGERS_PART):
            chosen = strangers
        if chosen is None:
            return False
        guest, give_way = next(iter(chosen.yielding.items()))
        # Leave first, because `abort` may call `leave` at once or later.
        self.leave(guest)
        give_way()
        return True

    def _join(self, guest: Guest, key: str) -> None:
        self._keys[guest] = key
        self._groups.setdefault(key, _Group()).size += 1

    def _leave_group(self, guest: Guest) -> Callable[[], None] | None:
        key = self._keys[guest]
        group = self._groups[key]
        group.size -= 1
        if not group.size:
            del self._groups[key]
        return group.yielding.pop(guest, None)

    def _warn(self) -> None:
        now = self._clock()
        if now >= self._warned + SECONDS_BETWEEN_WARNINGS:
            self._warned = now
            log.warning("Limit of %d %s reached: each new one takes the place of an idle one", self.most, self._what)


async def serve(
    listener: socket.socket,
    make_protocol: Callable[[], asyncio.BaseProtocol],
    tls: ssl.SSLContext | None = None,
    places: Places | None = None,
) -> asyncio.Server:
    """Accept connections on a socket, with TLS if `tls` is given, and make a protocol for each.

    During the handshake a connection takes one of `places`. After that, the protocol takes its own place.
    """
    loop = asyncio.get_running_loop()

    def accept() -> asyncio.BaseProtocol:
        return make_protocol() if tls is None else _Handshake(make_protocol, tls, places)

    # With few places, a crowd that connects at once would replace a client before its first bytes are read.
    at_once = ACCEPTED_AT_ONCE if places is None else min(ACCEPTED_AT_ONCE, max(1, places.most // _TURNS_TO_SPEAK))
    server = await loop.create_server(accept, sock=listener, backlog=at_once)
    # asyncio uses `backlog` also as the number of connections to accept per turn. The system may queue more.
    listener.listen(BACKLOG)
    return server


class FirstBytes(asyncio.Protocol):
    """A connection to a port of two protocols, until its first bytes show which one it is.

    One protocol begins with the bytes `beginning`; a connection that begins with anything else is of the other. Until
    then the connection takes one of `places`.
    """

    def __init__(
        self,
        beginning: bytes,
        make_protocol: Callable[[], asyncio.Protocol],
        make_other: Callable[[], asyncio.Protocol],
        places: Places,
    ) -> None:
        self._beginning = beginning
        self._make_protocol = make_protocol
        self._make_other = make_other
        self._places = places
        self._read = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(FIRST_BYTES_SECONDS, self.abort)
        self._places.enter(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        read = self._read = self._read + data
        if len(read) < len(self._beginning) and self._beginning.startswith(read):
            return
        self._leave()
        protocol = self._make_protocol() if read.startswith(self._beginning) else self._make_other()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if not self._transport.is_closing():
            protocol.data_received(read)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.BaseProtocol`."""
        self._leave()

    def abort(self) -> None:
        """See `Guest`."""
        self._transport.abort()

    def _leave(self) -> None:
        self._timer.cancel()
        self._places.leave(self)


class _Handshake(asyncio.Protocol):
    """A connection from its first packet until its TLS handshake succeeds or fails."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext, places: Places | None
    ) -> None:
        self._make_protocol = make_protocol
        self._tls = tls
        self._places = places
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        if self._places is not None:
            self._places.enter(self)
        ended = asyncio.get_running_loop().create_future()
        ended.add_done_callback(self._ended)
        begin_tls(self._transport, self._make_protocol(), self._tls, HANDSHAKE_SECONDS, ended)

    def abort(self) -> None:
        """See `Guest`."""
        if self._transport is not None:
            self._transport.abort()

    def _ended(self, future: asyncio.Future[None]) -> None:
        # A failed handshake is the peer's problem. Reading the exception keeps asyncio from logging it.
        future.exception()
        if self._places is not None:
            self._places.leave(self)
        self._transport = None
