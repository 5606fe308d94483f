"""A second, simple implementation of evaluation: it walks the tree and returns the letters T, F, U or E."""

from __future__ import annotations

import uuid
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from oncebus.model.filters import tree
from oncebus.model.filters.properties import SYSTEM_NAMES, Duration, Instant, MessageProperties

UNKNOWN = object()


class Wrong(Exception):
    pass


def judge(node: tree.Predicate, message: MessageProperties, parameters: dict[str, object]) -> str:
    try:
        return _truth(node, message, parameters)
    except (Wrong, ArithmeticError, ValueError):
        return "E"


def _truth(node: tree.Predicate, message: MessageProperties, parameters: dict[str, object]) -> str:
    def value(part: tree.Expression) -> object:
        return _value(part, message, parameters)

    match node:
        case tree.Not(operand):
            return {"T": "F", "F": "T", "U": "U"}[_truth(operand, message, parameters)]
        case tree.And(operands) | tree.Or(operands):
            decisive = "F" if isinstance(node, tree.And) else "T"
            seen = set()
            for operand in operands:
                seen.add(_truth(operand, message, parameters))
                if decisive in seen:
                    return decisive
            return "U" if "U" in seen else ("T" if decisive == "F" else "F")
        case tree.IsNull(operand):
            return "T" if value(operand) is UNKNOWN else "F"
        case tree.Exists(tree.SystemProperty(name)):
            return "F" if message.system.get(name) is None else "T"
        case tree.Exists(tree.UserProperty(name)):
            return "T" if name.lower() in {key.lower() for key in message.user} else "F"
        case tree.Comparison(symbol, left, right):
            return _compared(symbol, value(left), value(right))
        case tree.In(operand, members):
            sought = value(operand)
            if sought is UNKNOWN:
                return "U"
            seen = set()
            for member in members:
                seen.add(_compared("=", sought, value(member)))
                if "T" in seen:
                    return "T"
            return "U" if "U" in seen else "F"
        case tree.Like(operand, pattern, escape):
            given = [value(operand), value(pattern), *([] if escape is None else [value(escape)])]
            if UNKNOWN in given:
                return "U"
            if not all(isinstance(text, str) for text in given):
                raise Wrong
            return "T" if like(str(given[0]), str(given[1]), str(given[2]) if escape else None) else "F"
    raise TypeError(node)


def like(value: str, pattern: str, escape: str | None) -> bool:
    """Match by keeping the set of all prefix lengths of the value that the pattern so far can match."""
    items: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if at + 1 == len(pattern):
                raise Wrong
            items.append((pattern[at + 1], True))
            at += 2
        else:
            items.append((pattern[at], False))
            at += 1
    reached = {0}
    for character, literal in items:
        if character == "%" and not literal:
            reached = set(range(min(reached, default=len(value) + 1), len(value) + 1))
        else:
            anything = character == "_" and not literal
            reached = {place + 1 for place in reached if place < len(value) and (anything or value[place] == character)}
    return len(value) in reached


def _compared(symbol: str, left: object, right: object) -> str:
    if left is UNKNOWN or right is UNKNOWN:
        return "U"
    if _kind(left) != _kind(right) or (_kind(left) in ("bool", "uuid", "bytes") and symbol not in ("=", "<>")):
        raise Wrong
    if _kind(left) == "number":
        left, right = _alike(left, right)
        if left != left or right != right:
            if isinstance(left, Decimal) and symbol not in ("=", "<>"):
                raise Wrong
            return "T" if symbol == "<>" else "F"
    if symbol in ("=", "<>"):
        holds = (left == right) is (symbol == "=")
    else:
        small, great = (left, right) if symbol[0] == "<" else (right, left)
        holds = small < great or (symbol[1:] == "=" and left == right)  # type: ignore[operator]
    return "T" if holds else "F"


def _value(node: tree.Expression, message: MessageProperties, parameters: dict[str, object]) -> object:
    match node:
        case tree.Constant(value):
            return UNKNOWN if value is None else value
        case tree.Parameter(name):
            return parameters[name]
        case tree.UserProperty(name):
            return _user(name, message)
        case tree.SystemProperty(name):
            return _system(name, message)
        case tree.PropertyCall(inner):
            asked = _value(inner, message, parameters)
            if asked is UNKNOWN:
                return UNKNOWN
            if not isinstance(asked, str):
                raise Wrong
            if asked.lower().startswith("sys."):
                return _system(asked[4:], message)
            return _user(asked[5:] if asked.lower().startswith("user.") else asked, message)
        case tree.Sign(symbol, operand):
            signed = _value(operand, message, parameters)
            return UNKNOWN if signed is UNKNOWN else _signed(symbol, signed)
        case tree.Arithmetic(symbol, left, right):
            first, second = _value(left, message, parameters), _value(right, message, parameters)
            return UNKNOWN if first is UNKNOWN or second is UNKNOWN else _calculated(symbol, first, second)
    raise TypeError(node)


def _signed(symbol: str, value: object) -> object:
    if _kind(value) not in ("number", "duration"):
        raise Wrong
    if symbol == "+":
        return value
    if isinstance(value, Duration):
        return Duration(-value.microseconds)
    return value.copy_negate() if isinstance(value, Decimal) else _fits(-value)  # type: ignore[operator]


def _calculated(symbol: str, left: object, right: object) -> object:
    kinds = _kind(left), _kind(right)
    if kinds == ("number", "number"):
        left, right = _alike(left, right)
        if isinstance(left, int) and isinstance(right, int):
            if symbol in "+-*":
                return _fits({"+": left + right, "-": left - right, "*": left * right}[symbol])
            whole = int(Fraction(left, right))
            return _fits(whole if symbol == "/" else left - whole * right)
        return _inexact(symbol, left, right)
    if symbol == "+" and "string" in kinds:
        if {"bytes", "moment", "duration"} & set(kinds):
            raise Wrong
        return _text(left) + _text(right)
    result = {
        ("moment", "-", "moment"): Duration,
        ("moment", "+", "duration"): Instant,
        ("moment", "-", "duration"): Instant,
        ("duration", "+", "moment"): Instant,
        ("duration", "+", "duration"): Duration,
        ("duration", "-", "duration"): Duration,
    }.get((kinds[0], symbol, kinds[1]))
    if result is None:
        raise Wrong
    first, second = left.microseconds, right.microseconds  # type: ignore[attr-defined]
    return result(first + second if symbol == "+" else first - second)


def _inexact(symbol: str, left: object, right: object) -> object:
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        if right == 0 and symbol in "/%":
            raise Wrong
        with localcontext() as context:
            context.prec = 28
            return {
                "+": lambda: left + right,
                "-": lambda: left - right,
                "*": lambda: left * right,
                "/": lambda: left / right,
                "%": lambda: left % right,
            }[symbol]()
    assert isinstance(left, float)
    assert isinstance(right, float)
    with np.errstate(all="ignore"):
        a, b = np.float64(left), np.float64(right)
        result = {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__, "%": lambda x: np.fmod(a, x)}
        return float(result[symbol](b))


def _text(value: object) -> str:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        text = str(value).upper()
        return text[:-2] if text.endswith(".0") else text
    return str(value)


def _alike(left: object, right: object) -> tuple[object, object]:
    if float in (type(left), type(right)):
        return float(left), float(right)  # type: ignore[arg-type]
    if Decimal in (type(left), type(right)):
        return Decimal(left), Decimal(right)  # type: ignore[arg-type]
    return left, right


def _fits(value: object) -> object:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Wrong
    return value


def _kind(value: object) -> str:
    return {
        str: "string",
        bool: "bool",
        int: "number",
        float: "number",
        Decimal: "number",
        bytes: "bytes",
        uuid.UUID: "uuid",
        Instant: "moment",
        Duration: "duration",
    }[type(value)]


def _user(name: str, message: MessageProperties) -> object:
    for key in [name, *message.user]:
        if key in message.user and key.lower() == name.lower():
            value = message.user[key]
            return UNKNOWN if value is None else value
    return UNKNOWN


def _system(name: str, message: MessageProperties) -> object:
    for known in SYSTEM_NAMES:
        if known.lower() == name.lower():
            value = message.system.get(known)
            if known in ("MessageId", "CorrelationId") and isinstance(value, int | uuid.UUID):
                value = str(value)
            return UNKNOWN if value is None else value
    raise Wrong
