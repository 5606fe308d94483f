"""The parser of templates' expression language: a string becomes a small tree, or an error.

    "[concat(parameters('prefix'), '-', variables('names')[0].short)]"

A string in brackets is an expression. A string that begins with two brackets is a literal; the first bracket is
dropped.

    expression   operand { "." name | "[" expression "]" }
    operand      'text' | -12 | name "(" [ expression { "," expression } ] ")"

Inside quotes, two quotes stand for one. The parser does not know which functions exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebus.protocols.management.problems import Fault

LONGEST = 24_576
"""The maximum length of an expression in characters. It is the Resource Manager's limit."""
DEEPEST = 50
"""The maximum nesting depth of calls."""

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\S))"
)
_LONGEST_NUMBER = 18


class BadExpression(Fault):
    """A string is not a valid expression. The error names the position in the string, counted from 1."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A string or a number."""

    value: str | int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function with arguments."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """MemberAccess to a part of a value. Each step is the name of a member, or an expression in brackets."""

    of: Node
    steps: tuple[str | Node, ...]


Node = Literal | Call | MemberAccess


def is_expression(text: str) -> bool:
    """Return whether a string is an expression."""
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def unescape(text: str) -> str:
    """Return a string that is not an expression, without its escaping bracket."""
    return text[1:] if text.startswith("[[") and text.endswith("]") else text


def parse_expression(text: str) -> Node:
    """Return the tree of an expression in brackets. Raises `BadExpression`."""
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
        node = self._operand(depth)
        steps: list[str | Node] = []
        while self._token in (".", "[") and self._kind == "sign":
            if self._token == ".":
                self._next()
                steps.append(self._take("name", "the name of a member"))
            else:
                self._next()
                steps.append(self.expression(depth + 1))
                self._expect("]")
        return MemberAccess(node, tuple(steps)) if steps else node

    def expect_end(self) -> None:
        if self._kind != "end":
            raise self._error_expecting("the end")

    def _operand(self, depth: int) -> Node:
        if self._kind == "text":
            return Literal(self._take("text", "")[1:-1].replace("''", "'"))
        if self._kind == "number":
            digits = self._take("number", "")
            if len(digits) > _LONGEST_NUMBER:
                raise BadExpression(f"The number {digits[:20]}… is too long.")
            return Literal(int(digits))
        name = self._take("name", "a text in single quotes, a number or a function")
        if self._token == "." and self._kind == "sign":
            raise BadExpression(f"The template defines the function '{name}.…'; such functions are not supported.")
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
            raise self._error_expecting(wanted)
        token = self._token
        self._next()
        return token

    def _expect(self, sign: str, where: str = "") -> None:
        if self._kind != "sign" or self._token != sign:
            raise self._error_expecting(f"'{sign}'{where}")
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

    def _error_expecting(self, wanted: str) -> BadExpression:
        # Positions count from 1, and the opening bracket is the first character.
        where = self._begin + 2
        found = "the end" if self._kind == "end" else repr(self._token[:40])
        return BadExpression(f"The expression is not valid: found {found} at character {where}, expected {wanted}.")
