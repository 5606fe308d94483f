"""Durations as Service Bus writes them, ISO 8601 ("PT20S") and .NET time spans ("00:00:20"), and as people write them.

Here, durations are whole microseconds. .NET counts in tenths of a microsecond; parsing drops the tenths.
"""

from __future__ import annotations

import re
from contextlib import suppress

from oncebus.model.entities.errors import BadRequest
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND, BadDuration, NotADuration, parse_duration, spelt_out

NO_LIMIT = 922_337_203_685_477_580
"""TimeSpan.MaxValue, which means for ever. Its last digit, a tenth of a microsecond, appears only in the text forms."""

NO_LIMIT_ISO = "P10675199DT2H48M5.4775807S"
NO_LIMIT_DOTNET = "10675199.02:48:05.4775807"

# Clients that count in floats or milliseconds write the last seconds of TimeSpan.MaxValue differently. Nobody means a
# duration of 29 thousand years that is not for ever.
_AS_GOOD_AS_NO_LIMIT = NO_LIMIT // DAY * DAY

FORMS = "Write it like 90s, 10m, 2h, 7d, PT10M, 00:10:00 or '10 minutes'."
"""The forms that `duration_in` accepts, for errors and help texts."""

_LONGEST_TEXT = 100
_UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))

_TENTHS = re.compile(r"(\.[0-9]{6})[0-9]+(?=S$)", re.IGNORECASE)
_DOTNET = re.compile(
    r"(?P<sign>-?)(?:(?P<days>[0-9]{1,8})\.)?(?P<hours>[0-9]{1,2}):(?P<minutes>[0-9]{1,2})"
    r"(?::(?P<seconds>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,7}))?)?"
)


def parse_timespan(text: str, name: str) -> int:
    """Parse an ISO 8601 duration or a .NET time span into microseconds.

    Raises `BadRequest` with a text that calls the property `name`.
    """
    stripped = text.strip()
    microseconds = None
    if len(stripped) <= _LONGEST_TEXT:
        microseconds = _from_iso(stripped, name) if "P" in stripped[:2].upper() else _from_dotnet(stripped)
    if microseconds is None or microseconds < -NO_LIMIT:
        raise BadRequest(
            f"The value '{text}' of the property '{name}' is not a duration. Write it like 'PT10M' or '00:10:00'."
        )
    return NO_LIMIT if microseconds >= _AS_GOOD_AS_NO_LIMIT else microseconds


def duration_in(text: str, name: str) -> int:
    """Parse a duration typed by a person, and return microseconds.

    It may be ISO 8601, a time span, words, or short like 10m.

    Raises `BadDuration` with a text that calls the value `name`.
    """
    why: BadDuration
    try:
        return parse_duration(spelt_out(text), name, text)
    except NotADuration:
        why = NotADuration(f"{name.capitalize()} {text!r} is not a duration. {FORMS}")
    except BadDuration as error:
        why = error
    # Try the forms of the protocols: with colons, or ISO 8601 with tenths of a microsecond.
    with suppress(BadRequest):
        return parse_timespan(text, name)
    raise why


def iso_timespan(microseconds: int) -> str:
    """Return a duration in ISO 8601, as XmlConvert of .NET writes it: days are the largest unit, and zero is PT0S."""
    if microseconds >= NO_LIMIT:
        return NO_LIMIT_ISO
    days, hours, minutes, seconds, fraction = _split(abs(microseconds))
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if fraction:
        time += f"{seconds}." + f"{fraction:06}".rstrip("0") + "S"
    elif seconds or not (date or time):
        time += f"{seconds}S"
    return ("-" if microseconds < 0 else "") + "P" + date + ("T" + time if time else "")


def dotnet_timespan(microseconds: int) -> str:
    """Return a duration as TimeSpan.ToString of .NET writes it: [-][d.]hh:mm:ss[.fffffff]."""
    if microseconds >= NO_LIMIT:
        return NO_LIMIT_DOTNET
    days, hours, minutes, seconds, fraction = _split(abs(microseconds))
    text = f"{hours:02}:{minutes:02}:{seconds:02}"
    if days:
        text = f"{days}.{text}"
    if fraction:
        text += f".{fraction:06}0"
    return f"-{text}" if microseconds < 0 else text


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


def _split(microseconds: int) -> tuple[int, int, int, int, int]:
    days, rest = divmod(microseconds, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    return days, hours, minutes, *divmod(rest, SECOND)


def _from_iso(text: str, name: str) -> int | None:
    try:
        return parse_duration(_TENTHS.sub(r"\1", text), name)
    except BadDuration:
        return None


def _from_dotnet(text: str) -> int | None:
    match = _DOTNET.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match["hours"]), int(match["minutes"]), int(match["seconds"] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    fraction = int((match["fraction"] or "").ljust(6, "0")[:6])
    total = int(match["days"] or 0) * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND + fraction
    return -total if match["sign"] else total
