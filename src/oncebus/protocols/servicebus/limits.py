"""The limits of clients."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.amqp.limits import IDLE_SECONDS, MOST_UNSETTLED, TRUSTED_LINKS


@dataclass(frozen=True, slots=True)
class AmqpLimits:
    """The limits of clients. The size of a message is not among them: each entity has its own limit."""

    connections: int = 5000
    # Additional connections that have not authenticated yet. Above this, the oldest is closed.
    strangers: int = 2000
    # The idle time-out that the server announces. A client that was silent for twice as long counts as lost.
    idle_seconds: float = IDLE_SECONDS
    # For one connection.
    links: int = TRUSTED_LINKS
    tokens: int = 1000
    # Transactions of a connection at a time, also before it has authenticated, and requests to its coordinator.
    transactions: int = 1000
    stranger_transactions: int = 50
    controls: int = 100
    # How many messages a sender may have in flight, and above how many bytes in flight a connection is not read.
    credit: int = 1000
    bytes_under_way: int = 16 << 20
    # Unsettled deliveries of a connection.
    unsettled: int = MOST_UNSETTLED
    # How many of them are checked for expired locks in one call.
    lapsed: int = 1000
    # For one management link: requests at the same time, and the default time-out.
    requests: int = 100
    request_seconds: float = 60.0
    # The longest time-out that a client can set, for a request or for the wait for a session.
    longest_timeout_seconds: float = 86_400.0
    # The most that one call of the broker returns.
    peeked: int = 1000
    peeked_bytes: int = 4 << 20
    deferred: int = 1000
    deferred_bytes: int = 64 << 20
    deleted: int = 4000
    sessions: int = 1000
    rules: int = 1000
    # How long to wait for the next free session, unless the client sets a time-out.
    session_seconds: float = 65.0
    # How long the link of a session stays after its lock has expired. The service does not end it at once either, so a
    # client that is late learns from its own request that the lock is lost.
    session_grace_seconds: float = 1.0
    # The interval of checks for changed entities, expired tokens and lost sessions.
    look_seconds: float = 0.25
    # How long to wait for clients at shutdown. An idle client may not read, and then never answers the close.
    closing_seconds: float = 1.0
