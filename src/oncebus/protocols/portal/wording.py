"""Formats times, sizes, numbers and rates for people."""

from __future__ import annotations

from oncebus.protocols.http.times import iso8601
from oncebus.protocols.portal.markup import Markup, tag
from oncebus.values.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND

_SIZES = ("bytes", "KB", "MB", "GB", "TB")


def moment(time: int) -> Markup:
    """Return a time, to the millisecond."""
    written = iso8601(time)
    return tag("time", f"{written[:10]} {written[11:23]} UTC", datetime=written)


def ago(time: int, now: int) -> Markup:
    """Return how long ago a time is, with the exact time as its title."""
    written = iso8601(time)
    exact = f"{written[:10]} {written[11:23]} UTC"
    distance = now - time
    if abs(distance) < SECOND:
        text = "just now"
    else:
        text = f"{span(distance)} ago" if distance > 0 else f"in {span(-distance)}"
    return tag("time", text, datetime=written, title=exact)


def span(duration: int) -> str:
    """Return a duration like `350 ms`, `4.2 s`, `3 min`, `2 h 5 min` or `3 d 4 h`."""
    if duration < SECOND:
        return f"{duration / MILLISECOND:.0f} ms"
    if duration < MINUTE:
        return f"{duration / SECOND:.1f} s" if duration < 10 * SECOND else f"{duration / SECOND:.0f} s"
    if duration < HOUR:
        return f"{duration // MINUTE} min" if duration >= 10 * MINUTE else _two(duration, MINUTE, "min", SECOND, "s")
    return _two(duration, HOUR, "h", MINUTE, "min") if duration < DAY else _two(duration, DAY, "d", HOUR, "h")


def _two(duration: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = duration % large // small
    return f"{duration // large} {large_name}" + (f" {rest} {small_name}" if rest else "")


def share(part: int, whole: int) -> str:
    """Return a part of a whole like `12%`, `0.3%` or `–` if the whole is 0."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    return f"{percent:.0f}%" if percent == 0 or percent >= 10 else f"{max(percent, 0.1):.1f}%"


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


def count_in_words(count: int, noun: str) -> str:
    """Return a count like `1 message` or `2 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
