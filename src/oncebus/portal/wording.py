"""Times, durations, sizes and rates in words."""

from __future__ import annotations

from oncebus.durations import DAY, HOUR, MINUTE, SECOND
from oncebus.entities import NO_LIMIT
from oncebus.http.times import iso8601
from oncebus.portal.markup import Markup, tag

_UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))
_SIZES = ("bytes", "KB", "MB", "GB", "TB")


def in_words(microseconds: int) -> str:
    """Return a duration like `1 day 2 hours` or `no limit`."""
    if microseconds >= NO_LIMIT:
        return "no limit"
    parts, rest = [], microseconds
    for unit, name in _UNITS:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    if rest or not parts:
        parts.append(f"{rest / 1000:g} ms")
    return " ".join(parts)


def moment(time: int) -> Markup:
    """Return a time, to the millisecond."""
    written = iso8601(time)
    return tag("time", f"{written[:10]} {written[11:23]} UTC", datetime=written)


def size_in_words(size: int) -> str:
    """Return a size like `1.4 MB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size:,} bytes" if unit == 0 else f"{value:.1f} {_SIZES[unit]}"


def number(value: int) -> str:
    """Return a number like `12,345`."""
    return f"{value:,}"


def rate(per_second: float) -> str:
    """Return a rate like `0.4` or `1,200`."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def counted(count: int, noun: str) -> str:
    """Return a count like `1 message` or `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
