"""Runs a connection of `oncebus.amqp` over an asyncio transport: of a socket, of TLS, or of a WebSocket."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol, cast

from oncebus.amqp.conditions import CONNECTION_FORCED, INTERNAL_ERROR
from oncebus.amqp.connection import Connection
from oncebus.amqp.events import Event
from oncebus.amqp.limits import (
    CLOSE_SECONDS,
    DRAINED_BYTES,
    ENOUGH,
    HANDSHAKE_SECONDS,
    MOST_WAITING_BYTES,
    STEP_WORK,
    UNTRUSTED_READ_BYTES,
    UNTRUSTED_WAITING_BYTES,
    WEBSOCKET_READ_BYTES,
)
from oncebus.amqp.outcomes import AmqpError
from oncebus.protocols.borrowed import limit_read, limit_read_ahead
from oncebus.protocols.listening import limit_unacknowledged
from oncebus.protocols.servicebus.fair_reading import FairReading

log = logging.getLogger(__name__)


class Peer(Protocol):
    """Handles the events of one connection."""

    def on_events(self, events: list[Event]) -> None:
        """Handle events in order. Must not block. Output that this causes is written afterwards."""

    def on_lost(self) -> None:
        """Clean up after the transport is lost. Called once, as the last call, after the event `Closed`."""


class Wire(Protocol):
    """The operations on a peer's transport that a `Peer` may use."""

    remote: str
    """The peer's address, for logs."""

    def flush(self) -> None:
        """Write the connection's output soon, at most once per iteration of the event loop. Not needed in `on_events`.

        Needed after every other call that causes output, including `Connection.answer_sasl` and `Connection.close`.
        """

    def pause(self) -> None:
        """Stop reading from the peer until `resume`."""

    def resume(self) -> None:
        """Read from the peer again."""

    def abort(self) -> None:
        """Drop the connection at once, without a close."""


class Flushes:
    """Connections to flush: one callback of the event loop for all that have output in the same iteration."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def add(self, flush: Callable[[], None]) -> None:
        """Call `flush` soon."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._due.append(flush)

    def _flush_all(self) -> None:
        due, self._due = self._due, []
        for flush in due:
            try:
                flush()
            except Exception:
                # One connection must not keep the others from writing.
                log.exception("Failed to write to a peer")


class AmqpProtocol(asyncio.Protocol):
    """A connection over an asyncio transport.

    It disconnects a peer that does not authenticate within `handshake_seconds`, that neither answers a close nor
    disconnects within `close_seconds`, or that leaves more than `most_waiting_bytes` of output, or too many answers,
    unread. While a peer does not read, deliveries and answers wait; other frames are still written, up to that limit.
    A peer that sends nothing for twice the idle time-out that we announced counts as lost: its network may be gone.

    Input is processed in small steps, in turn with other connections. Meanwhile the peer is not read.
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
        flushes: Flushes | None = None,
        reading: FairReading | None = None,
    ) -> None:
        """`flushes` and `reading` may be shared by the connections of one event loop."""
        self.connection = connection
        self.is_writable = False
        self._make_peer = make_peer
        self._clock = clock
        self._handshake_seconds = handshake_seconds
        self._close_seconds = close_seconds
        self._most_waiting_bytes = most_waiting_bytes
        self._flushes = flushes or Flushes()
        self.reading = reading or FairReading()
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self.remote = "unknown"
        self._deadline: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._longest_silence = 2 * (connection.idle_timeout_ms or 0) / 1000
        self._heard_at = 0.0
        self._is_beating = False
        self._is_flush_due = False
        self._is_awaiting_close = False
        self._is_ending = False
        self._is_held = False
        self._unread = b""
        self._drained = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        # Transports of other event loops do not derive from asyncio.Transport.
        transport = self._transport = cast(asyncio.Transport, transport)
        self.remote = _address(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=ENOUGH)
        limit_reading(transport, UNTRUSTED_READ_BYTES)
        if self._longest_silence and (own := transport.get_extra_info("socket")) is not None:
            limit_unacknowledged(own, self._longest_silence)
        self.is_writable = True
        self._set_deadline(self._handshake_seconds, self._disconnect_untrusted)
        try:
            self._peer = self._make_peer(self.connection, self)
        except Exception:
            log.exception("Failed to set up a connection", extra={"fields": {"remote": self.remote}})
            self.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._heard_at = self._clock()
        if self._is_ending:
            self._drain(len(data))
            return
        self._unread = self._unread + data if self._unread else data
        self._run()

    @property
    def is_known(self) -> bool:
        """See `InputReader`."""
        return self.connection.is_trusted

    def step(self) -> bool:
        """See `InputReader`."""
        if self._transport is None or self._is_held or self._is_ending:
            return False
        data, self._unread = self._unread, b""
        was_trusted = self.connection.is_trusted
        try:
            events = self.connection.receive(data, STEP_WORK)
        except Exception:
            log.exception("Failed to process bytes from a peer", extra={"fields": {"remote": self.remote}})
            self.abort()
            return False
        if events:
            self._hand_over(events)
        if self.connection.is_trusted and not was_trusted:
            limit_reading(self._transport, None)
        if not self._is_beating and self.connection.remote_open is not None:
            self._is_beating = True
            self._beat()
            self._check_silence()
        if not self.connection.is_at_rest:
            self._write()
        if self._is_behind:
            return not self._is_held
        self._update_reading()
        return False

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
        for timer in (self._deadline, self._heartbeat, self._silence):
            if timer is not None:
                timer.cancel()
        peer = self._peer
        self._hand_over(self.connection.end_lost())
        self._peer = None
        if peer is not None:
            try:
                peer.on_lost()
            except Exception:
                log.exception("Failed to clean up a lost connection", extra={"fields": {"remote": self.remote}})

    def flush(self) -> None:
        """See `Wire`."""
        if not self._is_flush_due and self._transport is not None:
            self._is_flush_due = True
            self._flushes.add(self._flush)

    def pause(self) -> None:
        """See `Wire`."""
        self._is_held = True
        self._update_reading()

    def resume(self) -> None:
        """See `Wire`."""
        self._is_held = False
        if self._is_behind:
            self._run()
        else:
            self._update_reading()

    @property
    def _is_behind(self) -> bool:
        """Return whether input waits to be processed."""
        return bool(self._unread) or self.connection.is_behind

    def _run(self) -> None:
        """Process input now, or later when it is this connection's turn."""
        if self.reading.run(self):
            self._update_reading()

    def _update_reading(self) -> None:
        """Read from the peer unless the code that handles its events holds it, or earlier input waits."""
        transport, wanted = self._transport, not (self._is_held or self._is_behind)
        if transport is not None and not transport.is_closing() and transport.is_reading() is not wanted:
            if wanted:
                # It could not be heard meanwhile.
                self._heard_at = self._clock()
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _drain(self, size: int) -> None:
        """Discard input after the end. A peer that keeps sending is not read any more, until it is disconnected."""
        self._drained += size
        if self._drained > DRAINED_BYTES and self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def abort(self) -> None:
        """See `Wire`."""
        if self._transport is not None:
            self._transport.abort()

    def check_unread(self) -> bool:
        """Disconnect the peer if it leaves too many bytes unread. Return whether it stays connected."""
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if waiting > self._most_waiting_bytes or (waiting > UNTRUSTED_WAITING_BYTES and not self.connection.is_trusted):
            self._disconnect_unread(waiting)
            return False
        return True

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.connection.has_news:
            # Bytes that waited for the answer to SASL can be read now.
            self._run()
        self._write()

    def _hand_over(self, events: list[Event]) -> None:
        while events and self._peer is not None:
            try:
                self._peer.on_events(events)
            except Exception:
                log.exception("Failed to handle events from a peer", extra={"fields": {"remote": self.remote}})
                self.connection.close(AmqpError(INTERNAL_ERROR, "The server had an internal error."))
            events = self.connection.receive(b"", STEP_WORK) if self.connection.has_news else []

    def _write(self) -> None:
        transport, connection = self._transport, self.connection
        if transport is None:
            return
        chunks = connection.output()
        if chunks and not self._is_ending:
            # Joining a single chunk does not copy it.
            transport.write(b"".join(chunks))
            if not self.check_unread():
                return
        if connection.is_at_rest:
            return
        if connection.out.held > connection.most_held_bytes:
            self._disconnect_unread(connection.out.held)
            return
        if connection.is_closed:
            self._end()
        elif connection.is_closing:
            self._await_close()
        elif self.is_writable:
            self._hand_over(connection.relieve())
            if connection.has_output:
                # In the next iteration of the loop, so that other connections can write too.
                self.flush()

    def _await_close(self) -> None:
        if not self._is_awaiting_close:
            self._is_awaiting_close = True
            self._set_deadline(self._close_seconds, self.abort)
        self.resume()

    def _end(self) -> None:
        """Disconnect, but let a peer that is still sending read the reason: an immediate close loses unread output."""
        if self._is_ending or self._transport is None:
            return
        self._is_ending = True
        self._set_deadline(self._close_seconds, self.abort)
        self._unread = b""
        self.resume()
        if self._transport.can_write_eof() and not self.connection.is_closed_by_peer:
            try:
                self._transport.write_eof()
            except OSError:
                # The peer has reset the connection, and the loop has not noticed yet.
                self.abort()
        else:
            self._transport.close()

    def _beat(self) -> None:
        now = self._clock()
        due = self.connection.tick(now)
        if due is not None:
            self._heartbeat = asyncio.get_running_loop().call_later(due - now, self._beat)
        if self.connection.has_output:
            self._write()

    def _check_silence(self) -> None:
        """Give up a peer that was silent for too long, or check again when that could be so."""
        transport, longest = self._transport, self._longest_silence
        if transport is None or not longest or self.connection.is_closed:
            return
        now = self._clock()
        if not transport.is_reading():
            self._heard_at = now
        left = self._heard_at + longest - now
        if left > 0:
            self._silence = asyncio.get_running_loop().call_later(left, self._check_silence)
            return
        log.info(
            "Closing the connection of a silent peer", extra={"fields": {"remote": self.remote, "seconds": longest}}
        )
        reason = f"The connection was inactive for more than the allowed {longest * 1000:.0f} milliseconds."
        self._hand_over(self.connection.abandon(AmqpError(CONNECTION_FORCED, reason)))
        self._write()

    def _set_deadline(self, seconds: float, then: Callable[[], None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, then)

    def _disconnect_unread(self, waiting: int) -> None:
        fields = {"remote": self.remote, "bytes": waiting}
        log.warning("Disconnecting a peer that does not read", extra={"fields": fields})
        self.abort()

    def _disconnect_untrusted(self) -> None:
        if not self.connection.is_trusted:
            fields = {"remote": self.remote, "seconds": self._handshake_seconds}
            log.info("Disconnecting a peer that did not authenticate in time", extra={"fields": fields})
            self.abort()


def limit_reading(transport: asyncio.Transport, most: int | None) -> None:
    """Limit the bytes that the transport reads in one iteration of the event loop, or None for as many as it likes.

    asyncio would read 256 KB, and keep as much of a connection with TLS that is not read.
    """
    limit_read(transport, most)
    limit_read_ahead(transport, WEBSOCKET_READ_BYTES)


def _address(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        host = f"[{peername[0]}]" if ":" in str(peername[0]) else peername[0]
        return f"{host}:{peername[1]}"
    return str(peername or "unknown")
