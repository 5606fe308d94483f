"""Limits of one request."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.broker.sending import MOST_MESSAGES
from oncebus.values.durations import SECOND


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request.

    `lag` and `heartbeat` are durations in microseconds; names that end in `seconds` are in seconds. The largest message
    is a property of its entity.
    """

    lag: int = 30 * SECOND
    heartbeat: int = 15 * SECOND
    header_bytes: int = 64 * 1024
    # The JSON of a batch. It is more than the messages: escaped text may take six times its own bytes.
    batch_bytes: int = 8 << 20
    batch_messages: int = MOST_MESSAGES
    # The description of an entity, a rule or a namespace.
    description_bytes: int = 1 << 20
    longest_wait_seconds: float = 60.0
    # Time to receive the whole body.
    body_seconds: float = 120.0
    # The longest page of the records.
    page: int = 1000
    # Messages that one request peeks at, with their bodies.
    peeked: int = 100
    # Their total size. A single message may be larger.
    peeked_bytes: int = 8 << 20
