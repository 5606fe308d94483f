"""Times as they are written over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime

from oncebus.durations import LAST_MOMENT, SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc1123(time: int) -> str:
    """`Sun, 06 Nov 1994 08:49:37 GMT`; what is finer than a second is dropped, what is beyond all dates is the last."""
    return formatdate(min(time, LAST_MOMENT) // SECOND, usegmt=True)


def iso8601(time: int) -> str:
    """`1994-11-06T08:49:37.000000Z`; what is beyond all dates is the last."""
    moment = _EPOCH + min(time, LAST_MOMENT) * _MICROSECOND
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> int | None:
    """The microseconds of a time in either form, UTC unless it says otherwise; None where it is neither."""
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
