"""The functions of the expression language, with the arguments that each takes. All are in the table at the end.

Functions that must not evaluate all their arguments are in `oncebus.protocols.templates.evaluation`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncebus.protocols.management.documents import kind_of, parse_document, written_name
from oncebus.protocols.management.problems import Fault
from oncebus.protocols.templates.scope import Context, Value

LONGEST_TEXT = 1 << 17
"""The maximum length of a string that a function may return, in characters."""
MOST_IN_RANGE = 10_000

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(?P<at>[0-9]{1,3})(?::(?P<how>[^{}]*))?\}|[{}]")
_LONGEST_PADDING = 10_000
_MOST_SEPARATORS = 32
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ORDER = ("first", "second", "third", "fourth", "fifth")


class Misuse(Exception):
    """A function cannot work with its arguments. The text continues a sentence that begins with the function."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function and the kinds of its arguments, like `string|array int?`.

    A question mark means that the argument may be missing, a plus that one or more may follow, a star any number. A
    function of `context` gets that before its arguments. A shallow function does not look into its arguments, so a call
    is charged less.
    """

    name: str
    signature: str
    run: Callable[..., Value]
    is_shallow: bool = False

    def call(self, context: Context, values: Sequence[Value]) -> Value:
        """Return its result. Raises `Misuse`."""
        kinds = self.signature.split()
        takes_context = kinds[:1] == ["context"]
        kinds = [kind.rstrip("?*+") for kind in kinds[takes_context:]]
        for at, value in enumerate(values):
            check_kind(kinds[min(at, len(kinds) - 1)], at, value)
        return self.run(context, *values) if takes_context else self.run(*values)

    def check_count(self, given: int) -> None:
        """Raise `Fault` if a call has too few or too many arguments."""
        kinds = self.signature.removeprefix("context").split()
        least = sum(kind[-1] not in "?*" for kind in kinds)
        most = None if kinds and kinds[-1][-1] in "*+" else len(kinds)
        if given < least or (most is not None and given > most):
            wanted = f"at least {least}" if most is None else str(least) if most == least else f"{least} to {most}"
            plural = "" if wanted.split()[-1] == "1" else "s"
            raise Fault(f"The function '{self.name}' takes {wanted} argument{plural}, not {given}.")


def check_kind(kinds: str, at: int, value: Value) -> None:
    """Raise `Misuse` unless an argument is of one of the kinds, like `string|array`. `at` is its position."""
    if kinds != "any" and kind_of(value) not in kinds.split("|"):
        *others, last = (f"{'an' if kind[0] in 'aio' else 'a'} {kind}" for kind in kinds.split("|"))
        wanted = f"{', '.join(others)} or {last}" if others else last
        which = _ORDER[at] if at < len(_ORDER) else f"{at + 1}th"
        raise Misuse(f"takes {wanted} as its {which} argument, not {kind_of(value)}.")


def _check_length(characters: int) -> None:
    """Raise `Misuse` if a string of this length is too long. Call this before making the string."""
    if characters > LONGEST_TEXT:
        raise Misuse(f"would make a string of more than {LONGEST_TEXT} characters.")


# Texts


def _text_of(value: Value) -> str:
    """Return a value as text, in the way .NET writes it. Arrays and objects become JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if value is None:
        return ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _int(value: str | int) -> int:
    if isinstance(value, str) and not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
        raise Misuse(f"cannot convert '{value[:40]}' to a number.")
    return int(value)


def _bool(value: str | int) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, str) and value.strip().lower() not in known:
        raise Misuse(f"cannot convert '{value[:40]}' to true or false.")
    return known[value.strip().lower()] if isinstance(value, str) else bool(value)


def _json(text: str) -> Value:
    try:
        return parse_document(text)
    except Fault as error:
        raise Misuse(f"got a string that is not JSON: {error}") from None


def _replace(text: str, old: str, new: str) -> str:
    if not old:
        raise Misuse("cannot replace an empty string.")
    _check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _substring(text: str, start: int, length: int | None = None) -> str:
    length = len(text) - start if length is None else length
    if start < 0 or length < 0 or start + length > len(text):
        raise Misuse(f"needs {length} characters from {start} of '{text[:40]}', which has only {len(text)}.")
    return text[start : start + length]


def _split(text: str, given: str | list[Value]) -> list[str]:
    separators = [given] if isinstance(given, str) else given
    if not separators or not all(isinstance(each, str) and each for each in separators):
        raise Misuse("takes one or more separators, and none may be empty.")
    if len(separators) > _MOST_SEPARATORS:
        # Each separator is tried at every character.
        raise Misuse(f"takes up to {_MOST_SEPARATORS} separators, not {len(separators)}.")
    return re.split("|".join(map(re.escape, separators)), text)


def _join(values: list[Value], separator: str) -> str:
    texts = [_text_of(each) for each in values]
    _check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _pad_left(value: Value, width: int, filler: str = " ") -> str:
    if not 0 <= width <= _LONGEST_PADDING or len(filler) != 1:
        raise Misuse(f"takes a length up to {_LONGEST_PADDING} and one character.")
    return _text_of(value).rjust(width, filler)


def _format(template: str, *values: Value) -> str:
    length = 0

    def fill(match: re.Match[str]) -> str:
        nonlocal length
        if match["at"] is None:
            if len(match[0]) == 1:
                raise Misuse(f"has a single brace in '{template[:40]}'. Write it twice.")
            return match[0][0]
        at = int(match["at"])
        if at >= len(values):
            raise Misuse(f"refers to the value {{{at}}}, but got only {len(values)} values.")
        text = _format_value(values[at], match["how"])
        length += len(text)
        _check_length(length)
        return text

    return _PLACEHOLDER.sub(fill, template)


def _format_value(value: Value, how: str | None) -> str:
    if not how:
        return _text_of(value)
    match = re.fullmatch(r"(?P<letter>[dDxXnN])(?P<width>[0-9]{0,2})|(?P<zeros>0{1,99})", how)
    if match is None or isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"cannot write {_text_of(value)[:40]} as '{how[:40]}'.")
    if match["zeros"]:
        return ("-" if value < 0 else "") + str(abs(value)).rjust(len(match["zeros"]), "0")
    letter, width = match["letter"], int(match["width"] or (2 if match["letter"] in "nN" else 0))
    if letter in "nN":
        return f"{value:,.{width}f}"
    digits = f"{abs(value):{letter.lower()}}"
    sign = "-" if value < 0 else ""
    return sign + (digits.upper() if letter == "X" else digits).rjust(width, "0")


def _base64_to_string(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise Misuse("got a string that is not valid base64 of a text.") from None


def _unique_string(*texts: str) -> str:
    """Return 13 letters and digits that depend only on the arguments. They differ from those that Azure returns."""
    number = int.from_bytes(_digest(texts), "big")
    return "".join(_ALPHABET[number >> 5 * at & 31] for at in range(13))


def _digest(texts: Sequence[str]) -> bytes:
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).digest()


# Numbers and truth values


def _order(one: str | int, other: str | int) -> int:
    """Return a number below, equal to or above 0. Strings are compared with strings, and numbers with numbers."""
    if not (isinstance(one, str) and isinstance(other, str)):
        for at, value in enumerate((one, other)):
            check_kind("int", at, value)
    first: Any = one
    return bool(first > other) - bool(first < other)


def _mul(one: int, other: int) -> int:
    product = one * other
    if abs(product) >= 1 << 63:
        raise Misuse("returns a number of more than 64 bits.")
    return product


def _divide(one: int, other: int) -> tuple[int, int]:
    """Return quotient and remainder. Unlike in Python, the quotient is rounded towards 0."""
    if other == 0:
        raise Misuse("divides by zero.")
    quotient = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    return quotient, one - quotient * other


def _numbers(*values: Value) -> list[int]:
    numbers = values[0] if all(isinstance(each, list) for each in values) else values
    if not numbers:
        raise Misuse("needs at least one number.")
    for at, number in enumerate(numbers):
        check_kind("int", at, number)
    return list(numbers)


# Arrays and objects


def _concat(*values: Value) -> Value:
    if all(isinstance(each, list) for each in values):
        return [each for array in values for each in array]
    for at, value in enumerate(values):
        check_kind("string|int|bool", at, value)
    texts = [_text_of(value) for value in values]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _contains(value: Value, part: Value) -> bool:
    if isinstance(value, list):
        return any(_equals(each, part) for each in value)
    check_kind("string", 1, part)
    return part in value if isinstance(value, str) else written_name(value, part) is not None


def _equals(one: Value, other: Value) -> bool:
    # In Python, 1 equals True.
    return type(one) is type(other) and bool(one == other)


def _create_object(*values: Value) -> Value:
    if len(values) % 2:
        raise Misuse(f"takes pairs of a name and a value, not {len(values)} arguments.")
    for at in range(0, len(values), 2):
        check_kind("string", at, values[at])
    return dict(zip(values[::2], values[1::2], strict=True))


def _union(*values: Value) -> Value:
    for at, value in enumerate(values):
        check_kind(kind_of(values[0]), at, value)
    if isinstance(values[0], dict):
        merged: dict[str, Value] = {}
        for value in values:
            merged = _merge(merged, value)
        return merged
    found: dict[str, Value] = {}
    for array in values:
        for each in array:
            found.setdefault(_canonical(each), each)
    return list(found.values())


def _canonical(value: Value) -> str:
    """Return a text that is the same for equal values only. Unlike in Python, true does not equal 1."""
    return json.dumps(value, sort_keys=True)


def _merge(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    merged = dict(one)
    spellings: dict[str, str] = {}
    for name in one:
        spellings.setdefault(name.lower(), name)
    for name, value in other.items():
        known = name if name in merged else spellings.setdefault(name.lower(), name)
        old = merged.get(known)
        merged[known] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _intersection(first: Value, *rest: Value) -> Value:
    for at, value in enumerate(rest, 1):
        check_kind(kind_of(first), at, value)
    if isinstance(first, dict):
        return {name: value for name, value in first.items() if all(each.get(name) == value for each in rest)}
    others = [set(map(_canonical, each)) for each in rest]
    return [each for each in first if all(_canonical(each) in other for other in others)]


def _item(value: str | list[Value], at: int) -> Value:
    return value[at] if value else "" if isinstance(value, str) else None


def _index_of(value: str | list[Value], part: Value) -> int:
    if isinstance(value, list):
        return value.index(part) if part in value else -1
    check_kind("string", 1, part)
    return value.lower().find(part.lower())


def _range(start: int, count: int) -> list[int]:
    if not 0 <= count <= MOST_IN_RANGE:
        raise Misuse(f"makes 0 to {MOST_IN_RANGE} numbers, not {count}.")
    return list(range(start, start + count))


# About the deployment


def _copy_index(context: Context, *values: Value) -> int:
    is_named = bool(values) and isinstance(values[0], str)
    offset: int = values[-1] if len(values) > is_named else 0
    return context.loops.index(values[0] if is_named else None) + offset


def _resource_id(context: Context, *texts: str) -> str:
    """Return the id of a resource.

    The arguments are an optional subscription, an optional group, the type, and the names.
    """
    at = next((at for at, text in enumerate(texts[:3]) if "/" in text), None)
    if at is None:
        raise Misuse("takes a resource type, like 'Microsoft.ServiceBus/namespaces'.")
    provider, *kinds = texts[at].strip("/").split("/")
    names = [name for text in texts[at + 1 :] for name in text.split("/")]
    if len(kinds) != len(names):
        raise Misuse(f"needs {len(kinds)} names for the type '{texts[at]}', but got {len(names)}.")
    subscription = texts[at - 2] if at > 1 else context.deployment.subscription
    group = texts[at - 1] if at > 0 else context.deployment.group
    pairs = "/".join(f"{kind}/{name}" for kind, name in zip(kinds, names, strict=True))
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/{pairs}"


_ALL = (
    Function("string", "any", _text_of),
    Function("int", "string|int", _int),
    Function("bool", "string|int|bool", _bool),
    Function("json", "string", _json),
    Function("toLower", "string", str.lower),
    Function("toUpper", "string", str.upper),
    Function("trim", "string", str.strip),
    Function("replace", "string string string", _replace),
    Function("substring", "string int int?", _substring),
    Function("split", "string string|array", _split),
    Function("join", "array string", _join),
    Function("startsWith", "string string", lambda text, part: text.lower().startswith(part.lower())),
    Function("endsWith", "string string", lambda text, part: text.lower().endswith(part.lower())),
    Function("padLeft", "any int string?", _pad_left),
    Function("format", "string any*", _format),
    Function("base64", "string", lambda text: base64.b64encode(text.encode()).decode()),
    Function("base64ToString", "string", _base64_to_string),
    Function("uniqueString", "string+", _unique_string),
    Function("guid", "string+", lambda *texts: str(uuid.UUID(bytes=_digest(texts), version=5))),
    Function("equals", "any any", _equals),
    Function("not", "bool", operator.not_),
    Function("true", "", lambda: True),
    Function("false", "", lambda: False),
    Function("null", "", lambda: None),
    Function("less", "string|int string|int", lambda one, other: _order(one, other) < 0),
    Function("lessOrEquals", "string|int string|int", lambda one, other: _order(one, other) <= 0),
    Function("greater", "string|int string|int", lambda one, other: _order(one, other) > 0),
    Function("greaterOrEquals", "string|int string|int", lambda one, other: _order(one, other) >= 0),
    Function("add", "int int", operator.add),
    Function("sub", "int int", operator.sub),
    Function("mul", "int int", _mul),
    Function("div", "int int", lambda one, other: _divide(one, other)[0]),
    Function("mod", "int int", lambda one, other: _divide(one, other)[1]),
    Function("min", "int|array+", lambda *values: min(_numbers(*values))),
    Function("max", "int|array+", lambda *values: max(_numbers(*values))),
    Function("concat", "string|int|bool|array+", _concat),
    Function("length", "string|array|object", len, is_shallow=True),
    Function("empty", "null|string|array|object", operator.not_, is_shallow=True),
    Function("contains", "string|array|object any", _contains),
    Function("createArray", "any*", lambda *values: list(values)),
    Function("array", "any", lambda value: value if isinstance(value, list) else [value]),
    Function("createObject", "any*", _create_object),
    Function("union", "object|array+", _union),
    Function("intersection", "object|array+", _intersection),
    Function("first", "string|array", lambda value: _item(value, 0), is_shallow=True),
    Function("last", "string|array", lambda value: _item(value, -1), is_shallow=True),
    Function("take", "string|array int", lambda value, count: value[: max(0, count)]),
    Function("skip", "string|array int", lambda value, count: value[max(0, count) :]),
    Function("indexOf", "string|array any", _index_of),
    Function("range", "int int", _range),
    Function("items", "object", lambda value: [{"key": key, "value": each} for key, each in sorted(value.items())]),
    Function("objectKeys", "object", sorted),
    Function("copyIndex", "context string|int? int?", _copy_index),
    Function("resourceGroup", "context", lambda context: context.deployment.about_group()),
    Function("subscription", "context", lambda context: context.deployment.about_subscription()),
    Function("deployment", "context", lambda context: context.deployment.about_itself()),
    Function("resourceId", "context string string+", _resource_id),
)

FUNCTIONS = {function.name.lower(): function for function in _ALL}
"""All functions by lower-case name."""
