"""The resource limits of one connection. docs/reference/security.md lists them in a table; a test compares the two.

A peer that has not authenticated gets just enough to do so: a few links to $cbs, and room for a token.
"""

from __future__ import annotations

MEGABYTE = 1024 * 1024

UNTRUSTED_FRAME_SIZE = 16 * 1024
"""The largest frame, in bytes."""
UNTRUSTED_UNFINISHED_BYTES = 64 * 1024
"""Bytes of incomplete deliveries."""
UNTRUSTED_WAITING_BYTES = 64 * 1024
"""Bytes of answers that the peer has not read."""
UNTRUSTED_MESSAGE_BYTES = 64 * 1024
"""Bytes of one WebSocket message."""
UNTRUSTED_MESSAGES = 200
"""WebSocket frames of any kind. An empty one costs ten times the work of an empty frame of AMQP."""
UNTRUSTED_WORK = 16_384
"""Work for the frames of a peer that has not authenticated, counted as `STEP_WORK`."""
UNTRUSTED_READING_SECONDS = 0.002
"""Time in one iteration of the event loop for the input of all peers that have not authenticated."""
UNTRUSTED_READ_BYTES = 16 * 1024
"""Bytes that one iteration of the event loop reads from a peer that has not authenticated."""
UNTRUSTED_SESSIONS = 16
UNTRUSTED_LINKS = 32
UNTRUSTED_FRAME_ELEMENTS = 256
"""Values in one performative."""

TRUSTED_FRAME_SIZE = 64 * 1024
"""The largest frame, in bytes."""
TRUSTED_UNFINISHED_BYTES = 128 * MEGABYTE
TRUSTED_MESSAGE_BYTES = MEGABYTE
"""Bytes of one WebSocket message. The largest frame of AMQP fits; a message may hold several."""
TRUSTED_LINKS = 2000

MOST_ELEMENTS = 65_536
"""Values inside one decoded value: a section of a message, or the body of a request."""
MOST_SECTIONS = 10_000
"""Sections of one message. A body may have many, and a batch has one for each of its messages."""
MOST_FRAME_ELEMENTS = 2048
"""Values in one performative, or in the annotations of one message."""
LONGEST_NAME = 1024
"""Characters of a link's name."""
KEPT_CHARACTERS = 256
"""Characters kept of the container id and of the host name in the peer's open."""

MOST_UNSETTLED = 50_000
"""Unsettled deliveries of a connection."""
MOST_LAPSED = 10_000
"""Deliveries of a session whose lock expired before they were settled, remembered to answer a late settlement."""

READING_SECONDS = 0.005
"""Time in one iteration of the event loop for the input of all authenticated peers."""
STEP_WORK = 256
"""Work for the frames of one peer before others have their turn. A transfer, flow, disposition or heartbeat is 1."""
FRAME_WORK = 64
"""The work of any other frame. Each event that a frame causes is 1 more, unless it is a delivery."""
STATE_WORK = 16
"""The work of a disposition whose state is not the usual one, beyond that of a frame."""
DELIVERIES_PER_WORK = 8
"""So many deliveries in the range of a disposition count as 1."""
DRAINED_BYTES = 64 * 1024
"""Bytes read from a peer after its connection was closed, so that it can read the reason."""

WEBSOCKET_STEP_BYTES = 2048
"""Bytes of a WebSocket that are parsed before others have their turn. They may be hundreds of frames."""
WEBSOCKET_READ_BYTES = 32 * 1024
"""Bytes that one iteration of the event loop reads from a WebSocket, or keeps of an unread connection with TLS."""

MOST_HELD_BYTES = 64 * 1024
"""Bytes that a peer may send before SASL is answered."""

HANDSHAKE_SECONDS = 20.0
"""Time from connecting to a valid token or key."""
IDLE_SECONDS = 120.0
"""The idle time-out that the server announces. A peer that was silent for twice as long is closed."""
CLOSE_SECONDS = 5.0
"""Time for the peer to answer a close, or to disconnect."""
MOST_WAITING_BYTES = 16 * MEGABYTE
"""Bytes that an authenticated peer has not read."""

WINDOW = 4096
"""Transfers that the peer may have in flight in a session. Credit and the limits above bound their bytes."""

ENOUGH = 256 * 1024
"""Bytes of output above which no new delivery begins until they are written."""
