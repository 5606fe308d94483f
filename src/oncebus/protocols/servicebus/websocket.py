"""AMQP over WebSockets: a transport whose bytes travel in binary messages.

The bytes of a connection are one stream. Message boundaries have no meaning: a message may hold a part of an AMQP
frame, or several frames.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from oncebus.amqp.limits import (
    CLOSE_SECONDS,
    DRAINED_BYTES,
    TRUSTED_MESSAGE_BYTES,
    UNTRUSTED_MESSAGE_BYTES,
    UNTRUSTED_MESSAGES,
    WEBSOCKET_READ_BYTES,
    WEBSOCKET_STEP_BYTES,
)
from oncebus.protocols.servicebus.transport import AmqpProtocol, limit_reading

LARGEST_PAYLOAD = 4092
"""Bytes of AMQP in each message that the server sends. With its header, a message then has 4096 bytes.

Java's client has no room for larger ones, and four of them fill a TLS record.
"""

_log = logging.getLogger(__name__)


class WebSocket(asyncio.Transport, asyncio.Protocol):
    """A WebSocket after its handshake.

    It is the protocol of the socket's transport, and the transport of an `AmqpProtocol`.

    It answers pings and close frames. It closes the connection of a peer that sends text, frames that are not masked, a
    message above the limit, or too many frames before it has authenticated. The limits of `AmqpProtocol` on time and on
    unread bytes apply to the WebSocket as a whole.
    """

    def __init__(self, protocol: AmqpProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._frames = Protocol(Side.SERVER, max_size=UNTRUSTED_MESSAGE_BYTES, logger=_log)
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._has_ended = False
        self._is_paused = False
        self._unread = b""
        self._drained = 0
        self._untrusted_frames = 0

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = cast(asyncio.Transport, transport)
        limit_reading(self._transport, WEBSOCKET_READ_BYTES)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._has_ended:
            self._drained += len(data)
            if self._drained > DRAINED_BYTES and self._transport.is_reading():
                self._transport.pause_reading()
            return
        self._unread += data
        self._run()

    @property
    def is_known(self) -> bool:
        """See `Reader`."""
        return self._protocol.is_known

    def step(self) -> bool:
        """See `Reader`. Parse some bytes, and pass on the AMQP in them."""
        if self._has_ended or self._is_paused or self._transport.is_closing():
            return False
        piece, self._unread = self._unread[:WEBSOCKET_STEP_BYTES], self._unread[WEBSOCKET_STEP_BYTES:]
        frames, is_known = self._frames, self.is_known
        if is_known:
            frames.max_message_size = TRUSTED_MESSAGE_BYTES
        frames.receive_data(piece)
        found = cast(list[Frame], frames.events_received())
        if not is_known:
            self._untrusted_frames += len(found)
            if self._untrusted_frames > UNTRUSTED_MESSAGES:
                frames.fail(CloseCode.POLICY_VIOLATION, "Too many frames before a token or key.")
        pieces = []
        for frame in found:
            if frame.opcode is Opcode.TEXT:
                frames.fail(CloseCode.UNSUPPORTED_DATA, "AMQP needs binary messages.")
                break
            if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
                pieces.append(frame.data)
        if pieces and not self._is_closing:
            self._protocol.data_received(b"".join(pieces))
        self._write_control_frames()
        self._update_reading()
        return bool(self._unread)

    def _run(self) -> None:
        """Parse input now, or later when it is this connection's turn."""
        if self._protocol.reading.run(self):
            self._update_reading()

    def _update_reading(self) -> None:
        """Read from the socket unless the AMQP protocol has paused it, or earlier input waits."""
        transport, wanted = self._transport, not (self._is_paused or self._unread)
        if not transport.is_closing() and transport.is_reading() is not wanted:
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._protocol.connection_lost(exc)

    # From the AMQP protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport`."""
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport`. After a close of either side it writes nothing."""
        frames = self._frames
        if frames.state is State.OPEN:
            view = memoryview(data)
            for at in range(0, len(view), LARGEST_PAYLOAD):
                frames.send_binary(view[at : at + LARGEST_PAYLOAD])
            self._transport.write(b"".join(frames.data_to_send()))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport`."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport`."""
        return self._transport.get_write_buffer_size()

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport`."""
        return not self._is_paused

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._is_paused = True
        self._update_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._is_paused = False
        if self._unread:
            self._run()
        self._update_reading()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._is_closing or self._transport.is_closing()

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport`. A WebSocket can only close both directions."""
        return False

    def close(self) -> None:
        """See `asyncio.BaseTransport`. The `AmqpProtocol` disconnects a peer that does not answer in time."""
        self._is_closing = True
        if self._frames.state is State.OPEN:
            self._frames.send_close(CloseCode.NORMAL_CLOSURE)
            self._write_control_frames()

    def abort(self) -> None:
        """See `asyncio.WriteTransport`."""
        self._is_closing = True
        self._transport.abort()

    def _write_control_frames(self) -> None:
        """Write the frames that `websockets` has queued. An empty one means the end: disconnect."""
        queued = self._frames.data_to_send()
        if not queued:
            return
        self._transport.write(b"".join(queued))
        if queued[-1]:
            self._protocol.check_unread()
        else:
            self._end()

    def _end(self) -> None:
        """Disconnect, but let a peer that is still sending read the reason: an immediate close loses unread output."""
        self._is_closing = self._has_ended = True
        self._unread = b""
        self._deadline = asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
