"""JSON that a client sends. It is parsed only after its values and levels have been counted.

The parser of the standard library makes an object of many bytes from each few bytes of text, and the depth that it
accepts depends on the version of the interpreter.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_VALUES = 100_000
"""The maximum number of values in a text: about twenty for each message of the largest batch."""
DEEPEST = 64
"""The maximum nesting depth of lists and objects."""

# Everything up to the next character of the structure. Strings are matched as a whole, an unterminated one as well.
# The quantifiers are possessive, and the end of the text matches too: without both, the time would not be linear.
_UP_TO_STRUCTURE = re.compile(r'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))*+([\[\]{},]|\Z)', re.DOTALL)


class TooManyValues(ValueError):
    """The text has more values than allowed."""


class TooDeep(ValueError):
    """The lists and objects of the text are nested deeper than allowed."""


def parse_json(text: str | bytes, *, most_values: int = MOST_VALUES, **options: Any) -> Any:
    """Return the value of a JSON text. `options` are those of `json.loads`.

    Raises `ValueError` as `json.loads` does, and before it parses anything `TooManyValues` or `TooDeep`.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    # A value takes two characters, except the last one. Most texts are small, so that nobody needs to count.
    if len(text) > 2 * most_values or text.count("[") + text.count("{") > DEEPEST:
        _check(text, most_values)
    return json.loads(text, **options)


def _check(text: str, most_values: int) -> None:
    values, depth = 1, 0
    for found in _UP_TO_STRUCTURE.finditer(text):
        character = found[1]
        if character == ",":
            values += 1
        elif character in ("[", "{"):
            # An opening bracket begins a value of its own. If there is something between it and its closing bracket,
            # that counts here; the commas count the others.
            values += 1
            depth += 1
        else:
            depth -= 1
        if depth > DEEPEST:
            raise TooDeep(f"it is nested deeper than {DEEPEST} levels")
        if values > most_values:
            raise TooManyValues(f"it has more than {most_values:,} values")
