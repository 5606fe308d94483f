"""Parses durations as people write them (Spark's interval text, ISO 8601, timedelta) into whole microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from oncebus.values.errors import OncebusError

MICROSECOND = 1
MILLISECOND = 1000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
LONGEST = 36500 * DAY
"""The longest duration allowed. With this limit, the sum of a time and a duration always fits in 64 bits."""

FIRST_MOMENT = -62_135_596_800_000_000
"""The first microsecond of the year 1, counted from 1970: no earlier time can be written as a date."""

LAST_MOMENT = 253_402_300_799_999_999
"""The last microsecond of the year 9999, counted from 1970: no later time can be written as a date."""

_UNITS = {
    "microsecond": MICROSECOND,
    "millisecond": MILLISECOND,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
}
_TERM = re.compile(r"(?P<sign>[+-]?)\s*(?P<whole>\d+)(?:\.(?P<fraction>\d+))?\s*(?P<unit>[a-z]+?)s?\b", re.IGNORECASE)
_LETTERS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
# ASCII, because ignoring case would otherwise match the long s (U+017F) as s and the Kelvin sign as k.
_ANY_CASE = re.IGNORECASE | re.ASCII
_SHORT_TERM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])", _ANY_CASE)
_SHORT = re.compile(rf"(?:{_SHORT_TERM.pattern})+", _ANY_CASE)
_ISO = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<week>\d+)W)?(?:(?P<day>\d+)D)?"
    r"(?:T(?:(?P<hour>\d+)H)?(?:(?P<minute>\d+)M)?(?:(?P<second>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    _ANY_CASE,
)


class BadDuration(OncebusError, ValueError):
    """A text or value is not a duration, or is not allowed here."""


class NotADuration(BadDuration):
    """A text is not a duration in any known form."""


def utc_text(time: int, *, is_precise: bool = False) -> str:
    """Return a time, given in microseconds since 1970, as text such as `2026-01-31T08:30:00Z`.

    If `is_precise`, with its microseconds, unless these are zero.
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(max(time, FIRST_MOMENT), LAST_MOMENT))
    return moment.replace(tzinfo=None).isoformat(timespec="auto" if is_precise else "seconds") + "Z"


def duration_text(length: int) -> str:
    """Return a length in microseconds for people, in its two largest units: `4 min 10 s`, `2 d`, `0.25 s`."""
    if length < MINUTE:
        return f"{length / SECOND:.6f}".rstrip("0").rstrip(".") + " s"
    units = [("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND)]
    at = next(at for at, (_, unit) in enumerate(units) if length >= unit)
    found = []
    for name, unit in units[at : at + 2]:
        count, length = divmod(length, unit)
        if count:
            found.append(f"{count} {name}")
    return " ".join(found)


def parse_duration(value: str | timedelta, name: str, given: str | None = None) -> int:
    """Return a duration in microseconds. Raises `BadDuration`.

    The error text calls the duration `name`, and shows `given`, or the value itself if `given` is None.
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    text = value.strip()
    read = _iso if text[:1].upper() == "P" or text[1:2].upper() == "P" else _interval
    return read(text, value if given is None else given, name)


def spelt_out(text: str) -> str:
    """Expand a short form such as 10m or 1h30m to '10 minutes' or '1 hours 30 minutes'. Return other texts unchanged.

    Only for command lines and settings: the protocols and Spark do not accept the short forms.
    """
    if not _SHORT.fullmatch(text.strip()):
        return text
    return " ".join(f"{number} {_LETTERS[letter.lower()]}" for number, letter in _SHORT_TERM.findall(text))


def checked_duration(microseconds: int, given: object, name: str, *, least: int = 1) -> int:
    """Return the duration if it is in range, else raise `BadDuration`. The error shows `given`."""
    if microseconds < least:
        wanted = "longer than zero" if least > 0 else "zero or longer"
        raise BadDuration(f"{name.capitalize()} {given!r} must be {wanted}.")
    if microseconds > LONGEST:
        raise BadDuration(f"{name.capitalize()} {given!r} is longer than {LONGEST // DAY} days.")
    return microseconds


def _iso(text: str, given: str, name: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None or text[-1] in "PpTt":
        if re.match(r"[+-]?P(\d+Y|\d+M)", text, re.IGNORECASE):
            raise BadDuration(f"{name.capitalize()} {given!r} has years or months, which have no fixed length.")
        raise _unreadable(given, name)
    total = sum(int(match[unit] or 0) * _UNITS[unit] for unit in ("week", "day", "hour", "minute", "second"))
    total += _fraction(match["fraction"], SECOND, given, name)
    return -total if match["sign"] == "-" else total


def _interval(text: str, given: str, name: str) -> int:
    rest = re.sub(r"^interval\b", "", text, flags=re.IGNORECASE).strip()
    if not rest:
        raise _unreadable(given, name)
    total = 0
    while rest:
        match = _TERM.match(rest)
        if match is None:
            raise _unreadable(given, name)
        unit = match["unit"].lower()
        if unit in ("month", "year"):
            raise BadDuration(f"{name.capitalize()} {given!r} has {unit}s, which have no fixed length.")
        if unit not in _UNITS:
            raise _unreadable(given, name)
        term = int(match["whole"]) * _UNITS[unit] + _fraction(match["fraction"], _UNITS[unit], given, name)
        total += -term if match["sign"] == "-" else term
        rest = rest[match.end() :].strip()
    return total


def _fraction(digits: str | None, unit: int, given: str, name: str) -> int:
    if not digits:
        return 0
    scale: int = 10 ** len(digits)
    whole, rest = divmod(int(digits) * unit, scale)
    if rest:
        raise BadDuration(f"{name.capitalize()} {given!r} is finer than a microsecond.")
    return whole


def _unreadable(given: str, name: str) -> NotADuration:
    return NotADuration(f"{name.capitalize()} {given!r} is not a duration. Write it like '10 minutes' or 'PT10M'.")
