"""What one connection may take up.

A peer that has not shown who it is gets what it takes to do so: a few links to $cbs, and room for a token.
"""

from __future__ import annotations

MEGABYTE = 1024 * 1024

UNTRUSTED_FRAME_SIZE = 16 * 1024
UNTRUSTED_UNFINISHED_BYTES = 64 * 1024
UNTRUSTED_WAITING_BYTES = 256 * 1024
UNTRUSTED_SESSIONS = 16
UNTRUSTED_LINKS = 32

TRUSTED_LINKS = 8192

MOST_HELD_BYTES = 64 * 1024
"""Of what a peer sends before SASL is answered."""

WINDOW = 4096
"""How many transfers the peer may have under way in a session. Their bytes are bounded by credit and by the above."""

ENOUGH = 256 * 1024
"""So many bytes to write that no delivery should be begun before they are written."""
