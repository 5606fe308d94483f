"""What one connection may take up. docs/security.md has these in a table, which a test compares with them.

A peer that has not shown who it is gets what it takes to do so: a few links to $cbs, and room for a token.
"""

from __future__ import annotations

MEGABYTE = 1024 * 1024

UNTRUSTED_FRAME_SIZE = 16 * 1024
"""Bytes."""
UNTRUSTED_UNFINISHED_BYTES = 64 * 1024
"""Of deliveries that are not whole yet."""
UNTRUSTED_WAITING_BYTES = 64 * 1024
"""Of answers that the peer has not read."""
UNTRUSTED_SESSIONS = 16
UNTRUSTED_LINKS = 32
UNTRUSTED_FRAME_ELEMENTS = 256
"""Values in one performative."""

TRUSTED_FRAME_SIZE = 64 * 1024
"""Bytes."""
TRUSTED_UNFINISHED_BYTES = 128 * MEGABYTE
TRUSTED_LINKS = 2000

MOST_ELEMENTS = 65_536
"""Values in one value that is decoded: in a section of a message, or in the body of a request."""
MOST_SECTIONS = 10_000
"""Sections of one message: its body may be in very many pieces, and a batch has one for each of its messages."""
MOST_FRAME_ELEMENTS = 2048
"""Values in one performative, or in the annotations of one message."""
LONGEST_NAME = 1024
"""Characters of a link's name."""
KEPT_CHARACTERS = 256
"""Of what a peer says of itself when it opens."""

MOST_UNSETTLED = 50_000
"""Deliveries that a connection may have been sent and not settled."""
MOST_LAPSED = 10_000
"""Deliveries of a session that were not settled before their lock ended, and are remembered for a late answer."""

MOST_HELD_BYTES = 64 * 1024
"""Of what a peer sends before SASL is answered."""

HANDSHAKE_SECONDS = 20.0
"""From the first byte to a token or key."""
CLOSE_SECONDS = 5.0
"""For the peer to answer a close, or to hang up."""
MOST_WAITING_BYTES = 16 * MEGABYTE
"""Of what a peer that is trusted has not read."""

WINDOW = 4096
"""How many transfers the peer may have under way in a session. Their bytes are bounded by credit and by the above."""

ENOUGH = 256 * 1024
"""So many bytes to write that no delivery should be begun before they are written."""
