"""Functions of the expression language that return strings, numbers and truth values."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid

from oncebus.protocols.management.documents import parse_document
from oncebus.protocols.management.problems import Fault
from oncebus.protocols.templates.calling import Arguments, function
from oncebus.protocols.templates.scope import Value

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<at>[0-9]{1,3})(?::(?P<how>[^{}]*))?\}|[{}]")
_LONGEST_PADDING = 10_000
_MOST_SEPARATORS = 32
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def text_of(value: Value) -> str:
    """Return a value as text, in the way .NET writes it. Arrays and objects become JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if value is None:
        return ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@function("string")
def _string(given: Arguments) -> Value:
    return text_of(given.values[0])


@function("int")
def _int(given: Arguments) -> Value:
    value = given.values[0]
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
            raise given.fault(f"cannot convert '{value[:40]}' to a number.")
        return int(value)
    return given.whole(0)


@function("bool")
def _bool(given: Arguments) -> Value:
    value = given.values[0]
    if isinstance(value, int):
        return bool(value)
    known = {"true": True, "1": True, "false": False, "0": False}
    if given.text(0).strip().lower() not in known:
        raise given.fault(f"cannot convert '{value[:40]}' to true or false.")
    return known[value.strip().lower()]


@function("json")
def _json(given: Arguments) -> Value:
    try:
        return parse_document(given.text(0))
    except Fault as error:
        raise given.fault(f"got a string that is not JSON: {error}") from None


@function("toLower")
def _to_lower(given: Arguments) -> Value:
    return given.text(0).lower()


@function("toUpper")
def _to_upper(given: Arguments) -> Value:
    return given.text(0).upper()


@function("trim")
def _trim(given: Arguments) -> Value:
    return given.text(0).strip()


@function("replace", 3)
def _replace(given: Arguments) -> Value:
    if not given.text(1):
        raise given.fault("cannot replace an empty string.")
    grown = given.text(0).count(given.text(1)) * (len(given.text(2)) - len(given.text(1)))
    given.check_length(len(given.text(0)) + grown)
    return given.text(0).replace(given.text(1), given.text(2))


@function("substring", 2, 3)
def _substring(given: Arguments) -> Value:
    text, start = given.text(0), given.whole(1)
    length = given.whole(2) if len(given) > 2 else len(text) - start
    if start < 0 or length < 0 or start + length > len(text):
        raise given.fault(f"needs {length} characters from {start} of '{text[:40]}', which has only {len(text)}.")
    return text[start : start + length]


@function("split", 2)
def _split(given: Arguments) -> Value:
    separators = [given.text(1)] if isinstance(given.values[1], str) else given.array(1)
    if not separators or not all(isinstance(each, str) and each for each in separators):
        raise given.fault("takes one or more separators, and none may be empty.")
    if len(separators) > _MOST_SEPARATORS:
        # Each separator is tried at every character.
        raise given.fault(f"takes up to {_MOST_SEPARATORS} separators, not {len(separators)}.")
    return re.split("|".join(map(re.escape, separators)), given.text(0))


@function("join", 2)
def _join(given: Arguments) -> Value:
    texts = [text_of(each) for each in given.array(0)]
    given.check_length(sum(map(len, texts)) + len(given.text(1)) * len(texts))
    return given.text(1).join(texts)


@function("startsWith", 2)
def _starts_with(given: Arguments) -> Value:
    return given.text(0).lower().startswith(given.text(1).lower())


@function("endsWith", 2)
def _ends_with(given: Arguments) -> Value:
    return given.text(0).lower().endswith(given.text(1).lower())


@function("padLeft", 2, 3)
def _pad_left(given: Arguments) -> Value:
    width, filler = given.whole(1), given.text(2) if len(given) > 2 else " "
    if not 0 <= width <= _LONGEST_PADDING or len(filler) != 1:
        raise given.fault(f"takes a length up to {_LONGEST_PADDING} and one character.")
    return text_of(given.values[0]).rjust(width, filler)


@function("format", 1, -1)
def _format(given: Arguments) -> Value:
    values = given.values[1:]
    length = 0

    def filled(match: re.Match[str]) -> str:
        nonlocal length
        if match["at"] is None:
            if len(match[0]) == 1:
                raise given.fault(f"has a single brace in '{given.text(0)[:40]}'. Write it twice.")
            return match[0][0]
        at = int(match["at"])
        if at >= len(values):
            raise given.fault(f"refers to the value {{{at}}}, but got only {len(values)} values.")
        text = _formatted(given, values[at], match["how"])
        length += len(text)
        given.check_length(length)
        return text

    return _PLACEHOLDER.sub(filled, given.text(0))


def _formatted(given: Arguments, value: Value, how: str | None) -> str:
    if not how:
        return text_of(value)
    match = re.fullmatch(r"(?P<letter>[dDxXnN])(?P<width>[0-9]{0,2})|(?P<zeros>0{1,99})", how)
    if match is None or isinstance(value, bool) or not isinstance(value, int):
        raise given.fault(f"cannot write {text_of(value)[:40]} as '{how[:40]}'.")
    if match["zeros"]:
        return ("-" if value < 0 else "") + str(abs(value)).rjust(len(match["zeros"]), "0")
    letter, width = match["letter"], int(match["width"] or (2 if match["letter"] in "nN" else 0))
    if letter in "nN":
        return f"{value:,.{width}f}"
    digits = f"{abs(value):{letter.lower()}}"
    sign = "-" if value < 0 else ""
    return sign + (digits.upper() if letter == "X" else digits).rjust(width, "0")


@function("base64")
def _base64(given: Arguments) -> Value:
    return base64.b64encode(given.text(0).encode()).decode()


@function("base64ToString")
def _base64_to_string(given: Arguments) -> Value:
    try:
        return base64.b64decode(given.text(0), validate=True).decode()
    except ValueError:
        raise given.fault("got a string that is not valid base64 of a text.") from None


@function("uniqueString", 1, -1)
def _unique_string(given: Arguments) -> Value:
    """Return 13 letters and digits that depend only on the arguments. They differ from those that Azure returns."""
    number = int.from_bytes(_digest(given), "big")
    return "".join(_ALPHABET[number >> 5 * at & 31] for at in range(13))


@function("guid", 1, -1)
def _guid(given: Arguments) -> Value:
    return str(uuid.UUID(bytes=_digest(given), version=5))


def _digest(given: Arguments) -> bytes:
    texts = [given.text(at) for at in range(len(given))]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).digest()


@function("equals", 2)
def _equals(given: Arguments) -> Value:
    one, other = given.values
    # In Python, 1 equals True.
    return type(one) is type(other) and bool(one == other)


@function("not")
def _not(given: Arguments) -> Value:
    return not given.flag(0)


@function("true", 0)
def _true(_: Arguments) -> Value:
    return True


@function("false", 0)
def _false(_: Arguments) -> Value:
    return False


@function("null", 0)
def _null(_: Arguments) -> Value:
    return None


def _compared(given: Arguments) -> int:
    if given.all_are(str):
        one, other = given.text(0), given.text(1)
        return (one > other) - (one < other)
    first, second = given.whole(0), given.whole(1)
    return (first > second) - (first < second)


@function("less", 2)
def _less(given: Arguments) -> Value:
    return _compared(given) < 0


@function("lessOrEquals", 2)
def _less_or_equals(given: Arguments) -> Value:
    return _compared(given) <= 0


@function("greater", 2)
def _greater(given: Arguments) -> Value:
    return _compared(given) > 0


@function("greaterOrEquals", 2)
def _greater_or_equals(given: Arguments) -> Value:
    return _compared(given) >= 0


@function("add", 2)
def _add(given: Arguments) -> Value:
    return given.whole(0) + given.whole(1)


@function("sub", 2)
def _sub(given: Arguments) -> Value:
    return given.whole(0) - given.whole(1)


@function("mul", 2)
def _mul(given: Arguments) -> Value:
    product = given.whole(0) * given.whole(1)
    if abs(product) >= 1 << 63:
        raise given.fault("returns a number of more than 64 bits.")
    return product


@function("div", 2)
def _div(given: Arguments) -> Value:
    return _truncated(given)[0]


@function("mod", 2)
def _mod(given: Arguments) -> Value:
    return _truncated(given)[1]


def _truncated(given: Arguments) -> tuple[int, int]:
    one, other = given.whole(0), given.whole(1)
    if other == 0:
        raise given.fault("divides by zero.")
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    return quotient, one - quotient * other
