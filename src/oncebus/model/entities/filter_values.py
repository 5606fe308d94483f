"""Values in correlation filters and parameters of rules. They keep the type and the precision they were given with.

A whole number of a certain width is one of AMQP's types, such as `Int` or `Long`; a plain int has no width of its own.
Each value has a type of XML Schema and a text. The Atom feed and the files of catalogues write these two.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Self
from uuid import UUID

from oncebus.amqp.encoding import encode
from oncebus.amqp.types import Byte, Float, Int, Long, Short, UByte, UInt, ULong, UShort
from oncebus.model.entities.timespans import iso_timespan, parse_timespan

FilterValue = str | bool | int | float | Decimal | bytes | datetime | timedelta | UUID
"""The types of values in correlation filters and parameters."""

Parameters = tuple[tuple[str, FilterValue], ...]

# .NET counts tenths of a microsecond, Python whole ones.
_BEYOND_TENTHS = re.compile(r"(\.[0-9]{7})[0-9]+")
_LARGEST_DECIMAL = 2**96
_INT32 = range(-(2**31), 2**31)
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_WHOLE: dict[str, type[int]] = {
    "int": Int,
    "long": Long,
    "short": Short,
    "byte": Byte,
    "unsignedByte": UByte,
    "unsignedShort": UShort,
    "unsignedInt": UInt,
    "unsignedLong": ULong,
}
_NAMES_OF_WHOLE = {kind: name for name, kind in _WHOLE.items()}


class Moment(datetime):
    """A point in time that keeps its text, with tenths of a microsecond."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a date and time in ISO 8601. Raises `ValueError`."""
        text = _BEYOND_TENTHS.sub(r"\1", text.strip())
        moment = cls.fromisoformat(text)
        moment.text = text
        return moment


class TimeSpan(timedelta):
    """A duration that keeps its text, with tenths of a microsecond."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an ISO 8601 duration or a .NET time span. Raises `BadRequest`, or `OverflowError`."""
        span = cls(microseconds=parse_timespan(text, "Value"))
        span.text = _BEYOND_TENTHS.sub(r"\1", text.strip())
        return span


def _parse_decimal(text: str) -> Decimal:
    """Parse a decimal with the range of .NET's. Raises `ValueError`."""
    try:
        value = Decimal(text.strip())
    except ArithmeticError:
        raise ValueError from None
    # The exponents first: arithmetic with a large one overflows.
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -28 <= exponent <= value.adjusted() <= 28:
        raise ValueError
    # Not `abs`, which rounds.
    if value.copy_abs() >= _LARGEST_DECIMAL:
        raise ValueError
    return value


def _parse_whole(kind: type[int], text: str) -> int:
    stripped = text.strip()
    if not _INTEGER.fullmatch(stripped):
        raise ValueError
    value = kind(stripped)
    _check_range(value)
    return value


def _parse_single(text: str) -> Float:
    value = Float(float(text))
    _check_range(value)
    return value


def _check_range(value: int | float) -> None:
    """Raise `ValueError` if a number does not fit its type in AMQP: receivers of the rule could not get it."""
    encode(value)


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _FLAGS:
        raise ValueError
    return _FLAGS[word]


PARSERS: dict[str, Callable[[str], FilterValue]] = {
    "string": str,
    **{name: partial(_parse_whole, kind) for name, kind in _WHOLE.items()},
    "double": float,
    "float": _parse_single,
    "decimal": _parse_decimal,
    "boolean": _parse_flag,
    "dateTime": Moment.parse,
    "duration": TimeSpan.parse,
    "guid": UUID,
    "base64Binary": lambda text: base64.b64decode("".join(text.split()), validate=True),
    "anyURI": str,
}
"""Parse the text of a value, by its type. They raise `ValueError`, or `OverflowError`."""


def type_and_text(value: FilterValue) -> tuple[str, str]:
    """Return the type and the text of a value."""
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return _NAMES_OF_WHOLE.get(type(value)) or ("int" if value in _INT32 else "long"), str(value)
        case float():
            return "float" if isinstance(value, Float) else "double", _text_of_float(value)
        case Decimal():
            return "decimal", f"{value:f}"
        case Moment():
            return "dateTime", value.text
        case TimeSpan():
            return "duration", value.text
        case datetime():
            text = value.isoformat()
            return "dateTime", text.removesuffix("+00:00") + "Z" if value.tzinfo is UTC else text
        case timedelta():
            return "duration", iso_timespan(value // timedelta(microseconds=1))
        case UUID():
            return "guid", str(value)
        case bytes():
            return "base64Binary", base64.b64encode(value).decode()
    return "string", value


def _text_of_float(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
