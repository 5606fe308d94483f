"""How much clients may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a message may be is its entity's to say."""

    connections: int = 5000
    # Besides, of peers that have yet to show who they are. The oldest gives way.
    strangers: int = 2000
    # Of one connection.
    links: int = 2000
    tokens: int = 1000
    # How many messages a sender may have under way, and the bytes of a connection's from which it is not read.
    credit: int = 1000
    bytes_under_way: int = 16 << 20
    # How many deliveries a connection may have been sent and not settled.
    unsettled: int = 50_000
    # How many of them are looked at together, whether their locks have ended.
    lapsed: int = 1000
    # Of one management link.
    requests: int = 100
    request_seconds: float = 60.0
    # What one look into the store brings at most.
    messages_at_once: int = 500
    bytes_at_once: int = 8 << 20
    peeked: int = 1000
    peeked_bytes: int = 4 << 20
    deferred: int = 1000
    deferred_bytes: int = 64 << 20
    deleted: int = 4000
    sessions: int = 1000
    rules: int = 1000
    # How long the next free session is waited for, unless the client says.
    session_seconds: float = 65.0
    # How often it is looked whether entities have changed, tokens expired or sessions been lost.
    look_seconds: float = 0.25
    # A client that reads nothing, as one that is idle may, does not answer the close.
    closing_seconds: float = 1.0
