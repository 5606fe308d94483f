"""Converts times between Oncebus (microseconds since 1970) and clients."""

from __future__ import annotations

from oncebus.amqp.head import TICKS_AT_1970
from oncebus.amqp.types import Timestamp
from oncebus.values.durations import MILLISECOND

_TICKS_PER_MICROSECOND = 10
_LATEST = (1 << 63) - 1


def timestamp(time: int) -> Timestamp:
    """Return an AMQP timestamp, which has milliseconds."""
    return Timestamp(time // MILLISECOND)


def of_timestamp(milliseconds: int) -> int:
    """Return the time of an AMQP timestamp, clamped to 64 bits."""
    return max(min(milliseconds * MILLISECOND, _LATEST), -_LATEST)


def ticks(time: int) -> int:
    """Return .NET ticks: tenths of microseconds since the year 1."""
    return TICKS_AT_1970 + time * _TICKS_PER_MICROSECOND
