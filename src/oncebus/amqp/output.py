"""The output for a peer that is waiting to be written."""

from __future__ import annotations

from oncebus.amqp.fastwrite import disposition_frame
from oncebus.amqp.limits import ENOUGH, MOST_UNSETTLED
from oncebus.amqp.numbers import after


class Output:
    """The frames to write, in order. Successive settlements of consecutive deliveries are merged into one frame.

    `is_paused` means that the peer does not read. While `is_full`, deliveries wait; all other frames are still written,
    because the peer may be waiting for one of them. `has_been_full` shows that links must be notified when there is
    room again; `has_written` shows that no heartbeat is needed. `held` counts the bytes of answers that the sessions
    hold back. `unsettled` counts the deliveries that neither side has settled; `is_stuck` means that they reached the
    limit since the links were last notified of room.
    """

    __slots__ = (
        "_channel",
        "_chunks",
        "_first",
        "_last",
        "_role",
        "_state",
        "has_been_full",
        "has_written",
        "held",
        "is_paused",
        "is_stuck",
        "most_unsettled",
        "size",
        "unsettled",
    )

    def __init__(self, most_unsettled: int = MOST_UNSETTLED) -> None:
        self.is_paused = False
        self.is_stuck = False
        self.unsettled = 0
        self.most_unsettled = most_unsettled
        self.has_been_full = False
        self.has_written = False
        self.size = 0
        self.held = 0
        self._chunks: list[bytes] = []
        self._state: bytes | None = None
        self._channel = self._first = self._last = 0
        self._role = False

    @property
    def is_full(self) -> bool:
        """Return whether deliveries should wait."""
        return self.is_paused or self.size >= ENOUGH

    @property
    def is_empty(self) -> bool:
        """Return whether no output waits."""
        return not self._chunks and self._state is None

    @property
    def is_at_rest(self) -> bool:
        """Whether no output waits, here or in a session, and no link must be notified of room."""
        return not (self._chunks or self._state is not None or self.held or self.has_been_full or self.is_stuck)

    def write(self, frame: bytes) -> None:
        """Add a frame."""
        if self._state is not None:
            self._write_settlement()
        self._chunks.append(frame)
        self.size += len(frame)

    def write_transfer(self, head: bytes, payload: bytes | memoryview) -> None:
        """Add a frame in two pieces, so that the payload is not copied."""
        if self._state is not None:
            self._write_settlement()
        self._chunks.append(head)
        self._chunks.append(payload)  # type: ignore[arg-type]
        self.size += len(head) + len(payload)

    def settle(self, channel: int, role: bool, first: int, last: int, state: bytes) -> None:
        """Add a settlement of a range of deliveries."""
        if self._state is not None:
            if after(self._last) == first and self._channel == channel and self._role is role and self._state == state:
                self._last = last
                return
            self._write_settlement()
        self._channel, self._role, self._first, self._last, self._state = channel, role, first, last, state

    def take(self) -> list[bytes]:
        """Remove and return all waiting output."""
        if self._state is not None:
            self._write_settlement()
        if self.size >= ENOUGH:
            self.has_been_full = True
        if self._chunks:
            self.has_written = True
        chunks, self._chunks, self.size = self._chunks, [], 0
        return chunks

    def _write_settlement(self) -> None:
        assert self._state is not None
        frame = disposition_frame(self._channel, self._role, self._first, self._last, self._state)
        self._state = None
        self._chunks.append(frame)
        self.size += len(frame)
