"""Formats times, sizes, numbers and rates for people."""

from __future__ import annotations

from oncebus.http.times import iso8601
from oncebus.portal.markup import Markup, tag

_SIZES = ("bytes", "KB", "MB", "GB", "TB")


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
