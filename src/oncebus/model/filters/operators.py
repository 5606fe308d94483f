"""Comparison and arithmetic of two values that are not null, with the type rules of C#.

- Two numbers are both converted to double if one is a double, else to decimal if one is a decimal, else to integer.
- Integer division rounds towards zero. Integers must stay within 64 bits, and dividing them by zero fails. Operations
  on doubles never fail.
- Strings, numbers, timestamps and durations are ordered. Booleans, UUIDs and binaries can only be equal or not.
- `+` concatenates if either side is a string. Timestamps and durations can be added and subtracted where that makes
  sense.
- Everything else fails. In particular, a string is never converted to a number.
"""

from __future__ import annotations

import math
import operator
import uuid
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any

from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.properties import Duration, Instant

LONGEST_STRING = 32 * 1024
"""The maximum length of a string that a rule builds, in characters."""

_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
_DECIMAL = Context(prec=28, traps=[DivisionByZero, InvalidOperation, Overflow])


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

INTEGERS: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
"""The operators on two integers that need no special case except the check for 64 bits."""

_NUMBERS = (int, float, Decimal)
_ORDERED: tuple[type, ...] = (str, Instant, Duration)
_EQUAL_OR_NOT: tuple[type, ...] = (*_ORDERED, bool, uuid.UUID, bytes)
_KIND_NAMES = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a double"),
    (Decimal, "a decimal"),
    (str, "a string"),
    (bytes, "a binary"),
    (uuid.UUID, "a uuid"),
    (Instant, "a timestamp"),
    (Duration, "a duration"),
)


def kind_name(value: object) -> str:
    """Return the name that errors use for the type of a value, such as 'an integer'."""
    for kind, name in _KIND_NAMES:
        if isinstance(value, kind):
            return name
    return f"a value of type {type(value).__name__}"


def compare(symbol: str, left: object, right: object) -> bool:
    """Return the result of a comparison. Neither side may be None.

    Raises `EvaluationFailure` if the two types cannot be compared.
    """
    if _is_number(left) and _is_number(right):
        return COMPARISONS[symbol](*_promote(left, right))
    for kind in _EQUAL_OR_NOT if symbol in ("=", "<>") else _ORDERED:
        if isinstance(left, kind) and isinstance(right, kind):
            return COMPARISONS[symbol](left, right)
    raise EvaluationFailure(f"'{symbol}' cannot compare {kind_name(left)} with {kind_name(right)}")


def calculate(symbol: str, left: object, right: object) -> object:
    """Return the result of an arithmetic operator. Neither side may be None.

    Raises `EvaluationFailure` if the types do not fit the operator, or if there is no result in range.
    """
    if _is_number(left) and _is_number(right):
        first, second = _promote(left, right)
        if isinstance(first, float) and isinstance(second, float):
            return _DOUBLES[symbol](first, second)
        if isinstance(first, Decimal) and isinstance(second, Decimal):
            return _decimals(symbol, first, second)
        if isinstance(first, int) and isinstance(second, int):
            return _integers(symbol, first, second)
    if symbol == "+" and (isinstance(left, str) or isinstance(right, str)):
        return _join(left, right)
    if symbol in "+-":
        moment = _times(symbol, left, right)
        if moment is not None:
            return moment
    raise EvaluationFailure(f"'{symbol}' cannot be applied to {kind_name(left)} and {kind_name(right)}")


def apply_sign(symbol: str, value: object) -> object:
    """Return the value with a sign applied. The value may not be None. Raises `EvaluationFailure`."""
    if _is_number(value) or isinstance(value, Duration):
        if symbol == "+":
            return value
        if isinstance(value, Duration):
            return Duration(within_64_bits(-value.microseconds, "-"))
        if isinstance(value, Decimal):
            return value.copy_negate()
        if isinstance(value, float):
            return -value
        if isinstance(value, int):
            return within_64_bits(-value, "-")
    raise EvaluationFailure(f"'{symbol}' cannot be applied to {kind_name(value)}")


def text_of(value: object) -> str | None:
    """Return a value as text, for concatenation; None for binaries, times and values of unknown types."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        # The format of .NET: 2.0 is written as 2, and an exponent has a capital E.
        return repr(value).removesuffix(".0").replace("e", "E") if math.isfinite(value) else _NOT_FINITE[repr(value)]
    if isinstance(value, int | Decimal | uuid.UUID):
        return str(value)
    return None


_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _promote(left: object, right: object) -> tuple[object, object]:
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)  # type: ignore[arg-type]
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return Decimal(left), Decimal(right)  # type: ignore[arg-type]
    return left, right


def within_64_bits(value: int, symbol: str) -> int:
    """Return `value`, the result of an integer operator. Raises `EvaluationFailure` if it does not fit in 64 bits."""
    if _SMALLEST <= value <= _GREATEST:
        return value
    raise EvaluationFailure(f"the result of '{symbol}' does not fit in 64 bits")


def _integers(symbol: str, left: int, right: int) -> int:
    if symbol in INTEGERS:
        result = INTEGERS[symbol](left, right)
    elif right == 0:
        raise EvaluationFailure(f"'{symbol}' by zero")
    else:
        result = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            result = -result
        if symbol == "%":
            result = left - right * result
    return within_64_bits(result, symbol)


def _decimals(symbol: str, left: Decimal, right: Decimal) -> Decimal:
    calculation = {
        "+": _DECIMAL.add,
        "-": _DECIMAL.subtract,
        "*": _DECIMAL.multiply,
        "/": _DECIMAL.divide,
        "%": _DECIMAL.remainder,
    }[symbol]
    if symbol in "/%" and right == 0:
        raise EvaluationFailure(f"'{symbol}' by zero")
    try:
        return calculation(left, right)
    except ArithmeticError:
        raise EvaluationFailure(f"the result of '{symbol}' is not a decimal") from None


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder(left: float, right: float) -> float:
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


_DOUBLES: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}


def _join(left: object, right: object) -> str:
    first, second = text_of(left), text_of(right)
    if first is None or second is None:
        raise EvaluationFailure(f"'+' cannot be applied to {kind_name(left)} and {kind_name(right)}")
    if len(first) + len(second) > LONGEST_STRING:
        raise EvaluationFailure(f"'+' builds a string longer than {LONGEST_STRING} characters")
    return first + second


def _times(symbol: str, left: object, right: object) -> Instant | Duration | None:
    if not isinstance(left, Instant | Duration) or not isinstance(right, Instant | Duration):
        return None
    result = _TIMES.get((type(left), symbol, type(right)))
    return None if result is None else result(_integers(symbol, left.microseconds, right.microseconds))


_TIMES: Mapping[tuple[type, str, type], type[Instant] | type[Duration]] = {
    (Duration, "+", Duration): Duration,
    (Duration, "-", Duration): Duration,
    (Instant, "-", Instant): Duration,
    (Instant, "+", Duration): Instant,
    (Instant, "-", Duration): Instant,
    (Duration, "+", Instant): Instant,
}
