"""Times as clients have them. Ours are microseconds since 1970."""

from __future__ import annotations

from oncebus.amqp import Timestamp
from oncebus.durations import MILLISECOND

_TICKS_AT_1970 = 621_355_968_000_000_000
_TICKS_PER_MICROSECOND = 10
_LATEST = (1 << 63) - 1


def timestamp(time: int) -> Timestamp:
    """AMQP's."""
    return Timestamp(time // MILLISECOND)


def of_timestamp(milliseconds: int) -> int:
    """From AMQP's; one that 64 bits do not hold is the first or the last that they do."""
    return max(min(milliseconds * MILLISECOND, _LATEST), -_LATEST)


def ticks(time: int) -> int:
    """.NET's: tenths of microseconds since the year 1."""
    return _TICKS_AT_1970 + time * _TICKS_PER_MICROSECOND
