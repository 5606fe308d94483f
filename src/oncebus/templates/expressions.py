"""The expression language of templates, as far as its form goes: a text becomes a small tree, or an error.

    "[concat(parameters('prefix'), '-', variables('names')[0].short)]"

A text is an expression if it stands in brackets; one that begins with two is itself, without the first.

    expression   what { "." name | "[" expression "]" }
    what         'text' | -12 | name "(" [ expression { "," expression } ] ")"

In a text two quotes stand for one. Nothing here looks at what a function does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebus.management.problems import Fault

LONGEST = 24_576
"""Characters, as the Resource Manager has it."""
DEEPEST = 50
"""Functions within each other."""

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\S))"
)
_LONGEST_NUMBER = 18


class BadExpression(Fault):
    """A text is no expression. It names the place, counted from 1 in the text as it is written."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A text or a number."""

    value: str | int


@dataclass(frozen=True, slots=True)
class Call:
    """A function and what it is given."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """What is found in a value by names, which are texts, and by what expressions in brackets come to."""

    of: Node
    steps: tuple[str | Node, ...]


Node = Literal | Call | Access


def is_expression(text: str) -> bool:
    """Whether a text is meant to be evaluated."""
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def unescaped(text: str) -> str:
    """A text that is no expression, as it is meant."""
    return text[1:] if text.startswith("[[") and text.endswith("]") else text


def parse_expression(text: str) -> Node:
    """The tree of a text in brackets. Raises `BadExpression`."""
    if len(text) > LONGEST:
        raise BadExpression(f"The expression has {len(text)} characters; {LONGEST} is the limit.")
    parser = _Parser(text[1:-1])
    node = parser.expression(1)
    parser.expect_end()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = self._token = ""
        self._begin = 0
        self._next()

    def expression(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise BadExpression(f"The expression is nested deeper than {DEEPEST} levels.")
        node = self._what(depth)
        steps: list[str | Node] = []
        while self._token in (".", "[") and self._kind == "sign":
            if self._token == ".":
                self._next()
                steps.append(self._take("name", "the name of a member"))
            else:
                self._next()
                steps.append(self.expression(depth + 1))
                self._expect("]")
        return Access(node, tuple(steps)) if steps else node

    def expect_end(self) -> None:
        if self._kind != "end":
            raise self._unexpected("the end")

    def _what(self, depth: int) -> Node:
        if self._kind == "text":
            return Literal(self._take("text", "")[1:-1].replace("''", "'"))
        if self._kind == "number":
            digits = self._take("number", "")
            if len(digits) > _LONGEST_NUMBER:
                raise BadExpression(f"The number {digits[:20]}… is too long.")
            return Literal(int(digits))
        name = self._take("name", "a text in single quotes, a number or a function")
        if self._token == "." and self._kind == "sign":
            raise BadExpression(f"The function '{name}.…' is a template's own; such functions are not supported.")
        self._expect("(", f" after '{name}'")
        arguments: list[Node] = []
        if self._token != ")" or self._kind != "sign":
            arguments.append(self.expression(depth + 1))
            while self._token == "," and self._kind == "sign":
                self._next()
                arguments.append(self.expression(depth + 1))
        self._expect(")")
        return Call(name, tuple(arguments))

    def _take(self, kind: str, wanted: str) -> str:
        if self._kind != kind:
            raise self._unexpected(wanted)
        token = self._token
        self._next()
        return token

    def _expect(self, sign: str, where: str = "") -> None:
        if self._kind != "sign" or self._token != sign:
            raise self._unexpected(f"'{sign}'{where}")
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._kind, self._token, self._begin = "end", "", len(self._text)
            return
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._begin = match.start(self._kind)
        self._at = match.end()

    def _unexpected(self, wanted: str) -> BadExpression:
        # Counted from 1, and the bracket is the first.
        where = self._begin + 2
        found = "it ends" if self._kind == "end" else f"{self._token[:40]!r} stands"
        return BadExpression(f"The expression is not understood: {found} at character {where}, not {wanted}.")
