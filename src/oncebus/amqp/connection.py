"""The engine of one connection: it takes bytes, and returns events and bytes to write.

It has no socket and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncebus.amqp.conditions import (
    DECODE_ERROR,
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    Violation,
)
from oncebus.amqp.events import Closed, Event, Opened, SessionBegun
from oncebus.amqp.fastread import (
    DISPOSITION,
    FLOW,
    TRANSFER,
    read_disposition,
    read_flow,
    read_transfer,
)
from oncebus.amqp.frames import AMQP_FRAME, HEAD_SIZE, HEARTBEAT, LEAST_FRAME_SIZE, check_head, frame, unpack_head
from oncebus.amqp.handshake import Handshake
from oncebus.amqp.limits import (
    FRAME_WORK,
    KEPT_CHARACTERS,
    MEGABYTE,
    MOST_FRAME_ELEMENTS,
    MOST_HELD_BYTES,
    MOST_UNSETTLED,
    TRUSTED_FRAME_SIZE,
    TRUSTED_LINKS,
    TRUSTED_UNFINISHED_BYTES,
    UNTRUSTED_FRAME_ELEMENTS,
    UNTRUSTED_FRAME_SIZE,
    UNTRUSTED_LINKS,
    UNTRUSTED_SESSIONS,
    UNTRUSTED_UNFINISHED_BYTES,
    UNTRUSTED_WORK,
)
from oncebus.amqp.numbers import FreeNumbers
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.output import Output
from oncebus.amqp.performatives import (
    Begin,
    Close,
    Detach,
    End,
    Open,
    Performative,
    decode_performative,
    encode_performative,
)
from oncebus.amqp.session import Session
from oncebus.amqp.types import DecodeError

_QUICKEST_HEARTBEAT = 0.1
_NEVER = 1 << 62


class Connection:
    """The connection to one peer. It takes bytes, and returns events and bytes to write.

    Nothing that a peer sends makes it raise. A violation becomes a close, end or detach with an error, plus the
    matching event.

    Once `is_closed` is set, it reads nothing more and writes only the remaining output. `is_closed_by_peer` means that
    the peer sends nothing more either. `largest_message` applies to links that are accepted without a limit of their
    own. `largest_frame` is the size of the largest frame that the peer may send now. Our open frame announces
    `max_frame_size`.
    """

    def __init__(
        self,
        *,
        container_id: str,
        max_frame_size: int = TRUSTED_FRAME_SIZE,
        channel_max: int = 255,
        handle_max: int = 255,
        idle_timeout_ms: int | None = None,
        sasl_mechanisms: Sequence[str] = ("MSSBCBS", "PLAIN", "ANONYMOUS"),
        most_unfinished_bytes: int = TRUSTED_UNFINISHED_BYTES,
        most_links: int = TRUSTED_LINKS,
        most_unsettled: int = MOST_UNSETTLED,
    ) -> None:
        self.container_id = container_id
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.handle_max = handle_max
        self.idle_timeout_ms = idle_timeout_ms
        self.remote_open: Open | None = None
        self.remote_frame_size = LEAST_FRAME_SIZE
        self.is_closed = False
        self.is_closed_by_peer = False
        self.is_trusted = False
        self.largest_message = MEGABYTE
        self.largest_frame = min(max_frame_size, UNTRUSTED_FRAME_SIZE)
        self.link_count = 0
        """The number of links the peer holds, including those that only one side has detached."""
        self.most_links = min(most_links, UNTRUSTED_LINKS)
        self.most_elements = UNTRUSTED_FRAME_ELEMENTS
        self.most_unfinished_bytes = min(most_unfinished_bytes, UNTRUSTED_UNFINISHED_BYTES)
        self.unfinished_bytes = 0
        self.out = Output(most_unsettled)
        self._trusted_unfinished_bytes = most_unfinished_bytes
        self._trusted_links = most_links
        self._channels = FreeNumbers()
        self._handshake = Handshake(sasl_mechanisms, self.out)
        self._sessions: dict[int, Session] = {}
        self._events: list[Event] = []
        # Bytes of a frame that is not complete, and complete frames that `receive` had to leave for later.
        self._pending = bytearray()
        self._needed = 1
        self._unread = b""
        self._unread_at = 0
        self._untrusted_work = UNTRUSTED_WORK
        self._is_open_sent = False
        self._is_close_sent = False
        self._is_finished = False
        self._low: dict[Session, None] = {}
        self._next_heartbeat: float | None = None

    @property
    def has_output(self) -> bool:
        """Return whether `output` would return anything."""
        return not self.out.is_empty

    @property
    def has_news(self) -> bool:
        """Whether `receive` would return or read anything without further bytes."""
        return bool(self._events) or len(self._pending) >= self._needed

    @property
    def is_behind(self) -> bool:
        """Return whether `receive` has left frames unread, because they would have been more than the given work."""
        return bool(self._unread)

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to write, nothing to continue and nothing to close."""
        return self.out.is_at_rest and not (self._is_close_sent or self.is_closed)

    @property
    def is_closing(self) -> bool:
        """Return whether our close has been written."""
        return self._is_close_sent

    @property
    def sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return [session for session in self._sessions.values() if session.is_open]

    @property
    def most_held_bytes(self) -> int:
        """Return how many bytes of answers may wait for a peer that does not read them."""
        return 2 * self.most_unfinished_bytes

    def receive(self, data: bytes, most_work: int = _NEVER) -> list[Event]:
        """Read bytes and return the events they complete, in order.

        After `answer_sasl`, call it with empty bytes to process the bytes that waited for the answer; also while
        `is_behind`, for the frames beyond `most_work`.
        """
        if (data or self._pending or self._unread) and not self.is_closed:
            try:
                self._read(data, most_work)
                if self._low:
                    for session in self._low:
                        session.reopen_window()
                    self._low.clear()
            except Violation as violation:
                self._fail(AmqpError(violation.condition, violation.description))
            except DecodeError as error:
                self._fail(AmqpError(DECODE_ERROR, str(error)))
        return self._take_events()

    def output(self) -> list[bytes]:
        """Return the bytes to write now. Each byte is returned once."""
        return self.out.take()

    def tick(self, now: float) -> float | None:
        """Write a heartbeat if the peer asked for heartbeats and one is due.

        Return the time of the next call, or None if the peer has not asked for heartbeats.
        """
        if self.remote_open is None or not self.remote_open.idle_time_out or self.is_closed:
            return None
        if self._next_heartbeat is not None and now < self._next_heartbeat:
            return self._next_heartbeat
        if self._next_heartbeat is not None:
            if not self.out.has_written and self.out.is_empty:
                self.out.write(HEARTBEAT)
            self.out.has_written = False
        # A third of the peer's time-out: then no gap between two frames is longer than two thirds of it.
        self._next_heartbeat = now + max(self.remote_open.idle_time_out / 3000, _QUICKEST_HEARTBEAT)
        return self._next_heartbeat

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection. `Closed` follows once the peer has answered or disconnected."""
        if self.is_closed or self._is_close_sent:
            return
        if not self._handshake.is_done:
            self._finish(None)
            return
        for session in self._sessions.values():
            session.shut()
        self._write_close(error)

    def trust(self) -> None:
        """Apply the full limits, because the peer has authenticated."""
        self.is_trusted = True
        self.largest_frame = self.max_frame_size
        self.most_links = self._trusted_links
        self.most_elements = MOST_FRAME_ELEMENTS
        self.most_unfinished_bytes = self._trusted_unfinished_bytes

    def answer_sasl(self, ok: bool) -> None:
        """Answer `SaslInit`. After True, `receive` continues with the waiting bytes; after False it reads nothing."""
        if self._handshake.is_asked and not self.is_closed:
            self._handshake.answer(ok)
            self._needed = 0
            if not ok:
                self._finish(None)

    def pause(self) -> None:
        """Send no deliveries until `resume`, because the peer does not read."""
        self.out.is_paused = self.out.has_been_full = True

    def resume(self) -> list[Event]:
        """Send again, because the peer reads again. Return events for the links that may send now."""
        self.out.is_paused = False
        return self.relieve()

    def relieve(self) -> list[Event]:
        """Continue waiting deliveries after the output was written. Return events for the links that may send."""
        if self.out.has_been_full and not self.is_closed:
            for session in self._sessions.values():
                if session.is_open:
                    session.outbound.pump()
            if not self.out.is_full:
                self.out.has_been_full = False
                self._report_room()
        if self.out.is_stuck and self.out.unsettled < self.out.most_unsettled and not self.is_closed:
            self.out.is_stuck = False
            self._report_room()
        return self._take_events()

    def abandon(self, error: AmqpError) -> list[Event]:
        """Close the connection without waiting for an answer, because the peer seems to be gone.

        Return the remaining events, as `end_lost` does.
        """
        self._fail(error)
        return self._take_events()

    def end_lost(self) -> list[Event]:
        """End the connection after the peer has disconnected. Return the remaining events; `Closed` is the last."""
        self._finish(None)
        return self._take_events()

    # For sessions and links.

    def report(self, event: Event) -> None:
        """Add an event to the result of `receive`. Nothing follows `Closed`."""
        if not self._is_finished:
            self._events.append(event)

    def reopen_later(self, session: Session) -> None:
        """Reopen a session's incoming window once the current bytes are read."""
        self._low[session] = None

    def write(self, channel: int, performative: Performative) -> None:
        """Write a frame. If an error does not fit the peer's frame size, its details are left out."""
        if self._is_finished:
            return
        body = encode_performative(performative)
        size = HEAD_SIZE + len(body)
        if size > self.remote_frame_size:
            if not isinstance(performative, Detach | End | Close) or performative.error is None:
                reason = f"A frame of {size} bytes is needed, but max-frame-size is {self.remote_frame_size}."
                self._fail(AmqpError(RESOURCE_LIMIT_EXCEEDED, reason))
                return
            body = encode_performative(replace(performative, error=performative.error.shorten()))
        self.out.write(frame(channel, body))

    def _read(self, data: bytes, most_work: int) -> None:
        """Read whole frames and keep the rest. Each byte is copied only a few times, however small the pieces are."""
        at = 0
        if self._unread:
            if data:
                self._unread = self._unread[self._unread_at :] + data
                self._unread_at = 0
            data, at, self._unread = self._unread, self._unread_at, b""
        elif self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                self._check_held()
                return
            data = bytes(self._pending)
            self._pending.clear()
        while not self._handshake.is_done:
            before = at
            if not self._handshake.is_asked:
                at, event = self._handshake.read(data, at, self.largest_frame)
                if event is not None:
                    self.report(event)
            if at == before:
                self._needed = _NEVER if self._handshake.is_asked else self._handshake.needed
                break
        else:
            at = self._read_frames(data, at, most_work)
        if at < len(data) and not self.is_closed and not self._unread:
            self._pending += data[at:]
            self._check_held()

    def _check_held(self) -> None:
        if self._handshake.is_asked and len(self._pending) > MOST_HELD_BYTES:
            raise Violation(RESOURCE_LIMIT_EXCEEDED, f"More than {MOST_HELD_BYTES} bytes arrived before SASL ended.")

    def _read_frames(self, data: bytes, at: int, most_work: int) -> int:
        end = len(data)
        sessions, events = self._sessions, self._events
        body, needed = at, HEAD_SIZE
        left = most_work if self.is_trusted else min(most_work, self._untrusted_work)
        given = left
        try:
            while end - at >= HEAD_SIZE:
                if left <= 0:
                    self._unread, self._unread_at = data, at
                    break
                size, offset, kind, channel = unpack_head(data, at)
                if offset != 2 or kind != AMQP_FRAME or not HEAD_SIZE <= size <= self.largest_frame:
                    problem = check_head(size, offset, kind, AMQP_FRAME, self.largest_frame)
                    if problem is not None:
                        raise Violation(FRAMING_ERROR, problem)
                stop = at + size
                if stop > end:
                    needed = size
                    break
                body = at + 4 * offset
                at = stop
                left -= 1
                if stop - body > 3 and data[body] == 0 and data[body + 1] == 0x53:
                    code = data[body + 2]
                    session = sessions.get(channel)
                    if session is not None and session.is_open:
                        if code == TRANSFER:
                            fields = read_transfer(data, body, stop)
                            session.on_transfer(fields, data[fields[7] : stop])
                            continue
                        before = len(events)
                        if code == DISPOSITION:
                            left -= session.on_disposition(read_disposition(data, body, stop))
                            continue
                        if code == FLOW:
                            session.on_flow(read_flow(data, body, stop))
                            left -= len(events) - before
                            continue
                if body < stop:
                    before = len(events)
                    performative, payload_at = decode_performative(data, body, stop, self.most_elements)
                    work = self._on_performative(channel, performative, data[payload_at:stop])
                    left -= FRAME_WORK + work + len(events) - before
                    if self.is_closed:
                        return end
        except DecodeError as error:
            raise Violation(
                DECODE_ERROR, str(DecodeError(error.name, max(error.offset - body, 0), error.reason))
            ) from None
        self._needed = needed
        if not self.is_trusted:
            self._untrusted_work -= given - left
            if self._untrusted_work <= 0:
                raise Violation(RESOURCE_LIMIT_EXCEEDED, "Too many frames came before a token or key.")
        return at

    def _on_performative(self, channel: int, performative: Performative, payload: bytes) -> int:
        """Handle a frame that the general decoder has read. Return the work beyond that of an ordinary frame."""
        name = type(performative).__name__.lower()
        if isinstance(performative, Close):
            self._on_close(performative)
        elif self._is_close_sent:
            pass
        elif isinstance(performative, Open):
            self._on_open(performative)
        elif self.remote_open is None:
            raise Violation(NOT_ALLOWED, f"The peer sent {name} before open.")
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        elif channel not in self._sessions:
            # Some clients end their session and then detach its links.
            if not isinstance(performative, Detach):
                raise Violation(NOT_ALLOWED, f"The peer sent {name} on the channel {channel}, which has no session.")
        else:
            session = self._sessions[channel]
            if isinstance(performative, End):
                del self._sessions[channel]
                self._channels.free(session.channel)
                session.on_end(performative)
            elif session.is_open:
                return session.on_performative(performative, payload)
        return 0

    def _on_open(self, remote: Open) -> None:
        if self.remote_open is not None:
            raise Violation(NOT_ALLOWED, "The peer sent open twice.")
        if remote.max_frame_size < LEAST_FRAME_SIZE:
            reason = f"max-frame-size cannot be {remote.max_frame_size}: the minimum is {LEAST_FRAME_SIZE}."
            raise Violation(INVALID_FIELD, reason)
        # It stays in memory as long as the connection, and long names only help a person who debugs.
        self.remote_open = replace(
            remote,
            container_id=remote.container_id[:KEPT_CHARACTERS],
            hostname=remote.hostname and remote.hostname[:KEPT_CHARACTERS],
        )
        self.remote_frame_size = min(remote.max_frame_size, self.max_frame_size)
        self._write_open()
        self.report(Opened())

    def _on_begin(self, channel: int, begin: Begin) -> None:
        assert self.remote_open is not None
        if channel > self.channel_max:
            raise Violation(FRAMING_ERROR, f"The channel {channel} is above channel-max {self.channel_max}.")
        if channel in self._sessions:
            raise Violation(NOT_ALLOWED, f"The channel {channel} already has a session.")
        if begin.remote_channel is not None:
            raise Violation(NOT_ALLOWED, f"The server began no session on the channel {begin.remote_channel}.")
        if not self.is_trusted and len(self._sessions) >= UNTRUSTED_SESSIONS:
            raise Violation(RESOURCE_LIMIT_EXCEEDED, f"The connection already has {UNTRUSTED_SESSIONS} sessions.")
        if self._channels.lowest > self.remote_open.channel_max:
            raise Violation(NOT_ALLOWED, f"No channel is left below channel-max {self.remote_open.channel_max}.")
        session = self._sessions[channel] = Session(self, begin, self._channels.take(), channel)
        self.report(SessionBegun(session))

    def _on_close(self, close: Close) -> None:
        self.is_closed_by_peer = True
        if not self._is_close_sent:
            self._write_close(None)
        self._finish(close.error)

    def _fail(self, error: AmqpError) -> None:
        """Close the connection because of the peer's error, and read nothing more."""
        if self._handshake.is_done and not self._is_close_sent:
            self._write_close(error)
        self._finish(error)

    def _finish(self, error: AmqpError | None) -> None:
        """Mark the connection closed and report the remaining events, once."""
        self.is_closed = True
        self._pending.clear()
        self._unread = b""
        if not self._is_finished:
            for session in self._sessions.values():
                session.shut()
                session.report_end(error)
            self._sessions.clear()
            self.report(Closed(error))
            self._is_finished = True

    def _write_open(self) -> None:
        self._is_open_sent = True
        opened = Open(
            container_id=self.container_id,
            max_frame_size=self.max_frame_size,
            channel_max=self.channel_max,
            idle_time_out=self.idle_timeout_ms,
        )
        self.out.write(frame(0, encode_performative(opened)))

    def _write_close(self, error: AmqpError | None) -> None:
        if not self._is_open_sent:
            self._write_open()
        self._is_close_sent = True
        self.write(0, Close(error=error))

    def _report_room(self) -> None:
        for session in self._sessions.values():
            session.report_room()

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events
