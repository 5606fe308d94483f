"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.durations import SECOND


@dataclass(frozen=True, slots=True)
class Limits:
    """`lag` and `heartbeat` are durations in microseconds, what ends in seconds is in seconds. How large a message may
    be is its entity's to say."""

    lag: int = 30 * SECOND
    heartbeat: int = 15 * SECOND
    header_bytes: int = 64 * 1024
    # Of the JSON around the messages: escaped text may take six times its own bytes.
    batch_bytes: int = 8 << 20
    batch_messages: int = 4500
    longest_wait_seconds: float = 60.0
    # A sender that does not get on with its body is given up.
    body_seconds: float = 120.0
    # The longest page of the records.
    page: int = 1000
    # Messages looked at with one request, their bodies with them.
    peeked: int = 100
    # Of these together, but for a single one.
    peeked_bytes: int = 8 << 20
