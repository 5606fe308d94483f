"""JSON as people write it in templates and configuration files: with comments, and line breaks in strings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeGuard

from oncebus.protocols.management.problems import Fault, FileRefused, Problem
from oncebus.protocols.untrusted_json import TooDeep, TooManyValues, parse_json

LARGEST = 4 << 20
"""The maximum size of a file in bytes. It is the Resource Manager's limit."""
MOST_VALUES = 250_000
"""The maximum number of values: about twenty for each entity of the largest namespace."""

Object = dict[str, Any]

# Strings are matched too, so that a comment mark inside a string stays. An unterminated string matches as well, and the
# quantifiers are possessive: without backtracking, the time is linear in the length.
_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)

# A comma that follows an opening bracket is matched too, so that `[,]` stays an error.
_TEXT_OR_COMMA = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]\s*+,|,(?=\s*+[\]}])', re.DOTALL)


def read_document(path: Path, what: str, *, trailing_commas: bool = False) -> Any:
    """Return the JSON value in a file. Raises `FileRefused` with a text that calls the file `what`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise FileRefused([Problem("", f"It cannot be read: {error.strerror}.")], f"{what} '{path}'") from error
    return parse_named(content, f"{what} '{path}'", trailing_commas=trailing_commas)


def parse_named(content: bytes | str, name: str, *, trailing_commas: bool = False) -> Any:
    """Return the JSON value of a text. Raises `FileRefused` with a text that calls it `name`."""
    try:
        return parse_document(content, trailing_commas=trailing_commas)
    except Fault as error:
        raise FileRefused([Problem("", f"It is not JSON: {error}")], name) from error


def parse_document(content: bytes | str, *, trailing_commas: bool = False) -> Any:
    """Return the JSON value of a text. Raises `Fault`, which names the line and column of the error.

    With `trailing_commas`, a comma may follow the last item of a list or object.
    """
    if len(content) > LARGEST:
        raise Fault(f"it is larger than {LARGEST >> 20} MB.")
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        text = without_comments(text)
        if trailing_commas:
            text = _TEXT_OR_COMMA.sub(lambda match: " " if match[0] == "," else match[0], text)
        value = parse_json(
            text, most_values=MOST_VALUES, strict=False, object_pairs_hook=_members, parse_constant=_no_constant
        )
        # JSON can escape half of a surrogate pair, but UTF-8 cannot encode it.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise Fault(f"line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except UnicodeDecodeError:
        raise Fault("it is not UTF-8.") from None
    except UnicodeEncodeError:
        raise Fault("a string in it contains half of a surrogate pair.") from None
    except (TooDeep, TooManyValues) as error:
        raise Fault(f"{error}.") from None
    except Fault:
        raise
    except ValueError:
        raise Fault("a number in it has too many digits.") from None
    return value


def without_comments(text: str) -> str:
    """Return the text with its comments replaced by spaces, so that lines and columns stay the same."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)

    return _TEXT_OR_COMMENT.sub(blank, text)


def quote_member(text: str, name: str) -> str:
    """Return the text of a document with quotes around one member's name, where they are missing.

    az sends the member `template` without them.
    """
    bare = re.compile(rf"{_TEXT_OR_COMMENT.pattern}|\b{re.escape(name)}(?=\s*+:)", re.DOTALL)
    return bare.sub(lambda match: f'"{name}"' if match[0] == name else match[0], text)


def is_object(value: object) -> TypeGuard[Object]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def find(members: Object, name: str) -> Any:
    """Return the value of a member, whatever the case of its name; None if there is no such member."""
    written = written_name(members, name)
    return None if written is None else members[written]


def written_name(members: Object, name: str) -> str | None:
    """Return the name of a member as the object spells it, whatever its case; None if there is no such member."""
    if name in members:
        return name
    lowered = name.lower()
    return next((each for each in members if each.lower() == lowered), None)


def kind_of(value: object) -> str:
    """Return the type of a value, in the terms of templates."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _members(pairs: list[tuple[str, Any]]) -> Object:
    members: Object = {}
    seen: set[str] = set()
    for name, value in pairs:
        if name.lower() in seen:
            raise Fault(f"an object has the member {name!r} more than once.")
        seen.add(name.lower())
        members[name] = value
    return members


def _no_constant(name: str) -> float:
    raise Fault(f"{name} is not a number.")
