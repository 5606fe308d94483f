"""A connection over an asyncio transport: the only part of the package that knows of input, output and time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol, cast

from oncebus.amqp.conditions import INTERNAL_ERROR
from oncebus.amqp.connection import Connection
from oncebus.amqp.events import Event
from oncebus.amqp.limits import (
    CLOSE_SECONDS,
    ENOUGH,
    HANDSHAKE_SECONDS,
    MOST_WAITING_BYTES,
    UNTRUSTED_WAITING_BYTES,
)
from oncebus.amqp.performatives import AmqpError

log = logging.getLogger(__name__)


class Peer(Protocol):
    """What is made of a peer's events: one for each connection."""

    def on_events(self, events: list[Event]) -> None:
        """What the peer did, in order. Must not wait; what it makes the connection say is written afterwards."""

    def on_lost(self) -> None:
        """The transport is gone. Called once, last, after the event `Closed`."""


class Wire:
    """What may be done with a peer's transport."""

    def __init__(self, protocol: AmqpProtocol, remote: str) -> None:
        self._protocol = protocol
        self.remote = remote
        """The peer's address, for people."""

    @property
    def is_writable(self) -> bool:
        """False while the peer does not read what was written. Nothing is sendable then; CreditChanged follows."""
        return self._protocol.is_writable

    def flush(self) -> None:
        """Write what the connection has to say, once in this turn of the loop. Not needed inside on_events.

        Needed after anything else that makes the connection say something, `Connection.answer_sasl` and
        `Connection.close` too.
        """
        self._protocol.flush()

    def pause(self) -> None:
        """Read nothing more from the peer until `resume`."""
        self._protocol.set_reading(False)

    def resume(self) -> None:
        """Read from the peer again."""
        self._protocol.set_reading(True)

    def abort(self) -> None:
        """Cut the connection at once."""
        self._protocol.abort()


class AmqpProtocol(asyncio.Protocol):
    """A connection over an asyncio transport.

    A peer is cut if it is not trusted within `handshake_seconds`, does not answer a close or go away after one within
    `close_seconds`, or lets more than `most_waiting_bytes` wait to be read, or more answers than the connection holds.
    While it does not read, deliveries and answers to it wait; all else is still written, up to that limit. It is never
    cut for being silent.
    """

    def __init__(
        self,
        connection: Connection,
        make_peer: Callable[[Connection, Wire], Peer],
        *,
        clock: Callable[[], float] = time.monotonic,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self.connection = connection
        self.is_writable = False
        self._make_peer = make_peer
        self._clock = clock
        self._handshake_seconds = handshake_seconds
        self._close_seconds = close_seconds
        self._most_waiting_bytes = most_waiting_bytes
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._remote = "unknown"
        self._deadline: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._is_beating = False
        self._is_flush_due = False
        self._is_awaiting_close = False
        self._is_ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        # Loops other than asyncio's own have transports that are not derived from its class.
        transport = self._transport = cast(asyncio.Transport, transport)
        self._remote = _address(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=ENOUGH)
        self.is_writable = True
        self._set_deadline(self._handshake_seconds, self._cut_untrusted)
        try:
            self._peer = self._make_peer(self.connection, Wire(self, self._remote))
        except Exception:
            log.exception("No peer could be made", extra={"fields": {"remote": self._remote}})
            self.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            events = self.connection.receive(data)
        except Exception:
            log.exception("The connection failed", extra={"fields": {"remote": self._remote}})
            self.abort()
            return
        self._hand_over(events)
        if not self._is_beating and self.connection.remote_open is not None:
            self._is_beating = True
            self._beat()
        self._write()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self.is_writable = False
        self.connection.pause()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self.is_writable = True
        self._hand_over(self.connection.resume())
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.BaseProtocol`."""
        self._transport = None
        self.is_writable = False
        for timer in (self._deadline, self._heartbeat):
            if timer is not None:
                timer.cancel()
        peer = self._peer
        self._hand_over(self.connection.lost())
        self._peer = None
        if peer is not None:
            try:
                peer.on_lost()
            except Exception:
                log.exception("A lost connection could not be cleared", extra={"fields": {"remote": self._remote}})

    def flush(self) -> None:
        """See `Wire.flush`."""
        if not self._is_flush_due and self._transport is not None:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def set_reading(self, on: bool) -> None:
        """See `Wire.pause` and `Wire.resume`."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.is_reading() is not on:
            if on:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def abort(self) -> None:
        """See `Wire.abort`."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._is_flush_due = False
        # What was held back for the answer to SASL may be read now.
        self._hand_over(self.connection.receive(b""))
        self._write()

    def _hand_over(self, events: list[Event]) -> None:
        while events and self._peer is not None:
            try:
                self._peer.on_events(events)
            except Exception:
                log.exception("Events could not be handled", extra={"fields": {"remote": self._remote}})
                self.connection.close(AmqpError(INTERNAL_ERROR, "The server met an error of its own."))
            events = self.connection.receive(b"")

    def _write(self) -> None:
        transport, connection = self._transport, self.connection
        if transport is None:
            return
        chunks = connection.output()
        if chunks and not self._is_ending:
            # A join of one copies nothing.
            transport.write(b"".join(chunks))
            waiting = transport.get_write_buffer_size()
            if waiting > self._most_waiting_bytes or (waiting > UNTRUSTED_WAITING_BYTES and not connection.is_trusted):
                self._cut_unread(waiting)
                return
        if connection.out.held > connection.most_held_bytes:
            self._cut_unread(connection.out.held)
            return
        if connection.is_closed:
            self._end()
        elif connection.is_closing:
            self._await_close()
        elif self.is_writable:
            self._hand_over(connection.relieve())
            if connection.has_output:
                # In the next turn: others want to write too.
                self.flush()

    def _await_close(self) -> None:
        if not self._is_awaiting_close:
            self._is_awaiting_close = True
            self._set_deadline(self._close_seconds, self.abort)
        self.set_reading(True)

    def _end(self) -> None:
        """Hang up. A peer that still sends must be able to read why: closing a socket loses what is under way to it."""
        if self._is_ending or self._transport is None:
            return
        self._is_ending = True
        self._set_deadline(self._close_seconds, self.abort)
        self.set_reading(True)
        if self._transport.can_write_eof() and not self.connection.is_closed_by_peer:
            self._transport.write_eof()
        else:
            self._transport.close()

    def _beat(self) -> None:
        now = self._clock()
        due = self.connection.tick(now)
        if due is not None:
            self._heartbeat = asyncio.get_running_loop().call_later(due - now, self._beat)
        if self.connection.has_output:
            self._write()

    def _set_deadline(self, seconds: float, then: Callable[[], None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, then)

    def _cut_unread(self, waiting: int) -> None:
        log.warning("Peer cut: it does not read", extra={"fields": {"remote": self._remote, "bytes": waiting}})
        self.abort()

    def _cut_untrusted(self) -> None:
        if not self.connection.is_trusted:
            fields = {"remote": self._remote, "seconds": self._handshake_seconds}
            log.info("Peer cut: it did not show who it is in time", extra={"fields": fields})
            self.abort()


def _address(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        host = f"[{peername[0]}]" if ":" in str(peername[0]) else peername[0]
        return f"{host}:{peername[1]}"
    return str(peername or "unknown")
