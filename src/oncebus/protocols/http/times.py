"""Formats of times over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime

from oncebus.values.durations import FIRST_MOMENT, LAST_MOMENT, SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc1123(time: int) -> str:
    """Return a time like `Sun, 06 Nov 1994 08:49:37 GMT`.

    Fractions of a second are dropped. A time beyond the last possible date becomes that date.
    """
    return formatdate(min(time, LAST_MOMENT) // SECOND, usegmt=True)


def iso8601(time: int) -> str:
    """Return a time like `1994-11-06T08:49:37.000000Z`. A time beyond the last possible date becomes that date.

    The first possible date stands for "never", which .NET writes without a fraction.
    """
    if time <= FIRST_MOMENT:
        return "0001-01-01T00:00:00Z"
    moment = _EPOCH + min(time, LAST_MOMENT) * _MICROSECOND
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> int | None:
    """Parse a time in either format into microseconds since 1970; None for other text. UTC is the default time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
