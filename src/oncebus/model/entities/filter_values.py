"""Values in correlation filters and parameters of rules. They keep the type and the precision they were given with.

A whole number of a certain width is one of AMQP's types, such as `Int` or `Long`; a plain int has no width of its own.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Self
from uuid import UUID

from oncebus.model.entities.timespans import parse_timespan

FilterValue = str | bool | int | float | Decimal | bytes | datetime | timedelta | UUID
"""The types of values in correlation filters and parameters."""

Parameters = tuple[tuple[str, FilterValue], ...]

# .NET counts tenths of a microsecond, Python whole ones.
_BEYOND_TENTHS = re.compile(r"(\.[0-9]{7})[0-9]+")
_LARGEST_DECIMAL = 2**96


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


class Span(timedelta):
    """A duration that keeps its text, with tenths of a microsecond."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an ISO 8601 duration or a .NET time span. Raises `BadRequest`, or `OverflowError`."""
        span = cls(microseconds=parse_timespan(text, "Value"))
        span.text = _BEYOND_TENTHS.sub(r"\1", text.strip())
        return span


def parse_decimal(text: str) -> Decimal:
    """Parse a decimal with the range of .NET's. Raises `ValueError`."""
    try:
        value = Decimal(text.strip())
    except ArithmeticError:
        raise ValueError from None
    # The exponents first: arithmetic with a large one overflows.
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -28 <= exponent <= value.adjusted() <= 28:
        raise ValueError
    if abs(value) >= _LARGEST_DECIMAL:
        raise ValueError
    return value
