"""Splits the text of a rule into tokens, in one pass from left to right."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from oncebus.model.filters.errors import unreadable

KEYWORDS = frozenset(
    ["AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "REMOVE", "SET", "TRUE"]
)
"""Reserved words, in any letter case. A property with such a name must be written in brackets."""

LARGEST_INTEGER = 2**63 - 1

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TWO_CHARACTERS = ("<>", "!=", "<=", ">=")
_ONE_CHARACTER = frozenset("=<>+-*/%(),;.")
_CLOSING = {"'": "'", '"': '"', "[": "]"}


class TokenKind(enum.Enum):
    """The kind of a token."""

    KEYWORD = "keyword"
    WORD = "word"
    # The name of a property in brackets or double quotes.
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    PARAMETER = "parameter"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a text. `text` is normalised: a keyword is in capitals, and a name or string has no quotes."""

    kind: TokenKind
    text: str
    position: int
    source: str
    number: int | float = 0

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end"
        shown = self.source if len(self.source) <= 40 else self.source[:40] + "…"
        return f"{shown!r}"


def tokens_of(text: str, what: str) -> list[Token]:
    """Return all tokens of a text; the last one is END. `what` names the kind of text in errors, such as a filter."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        token = _token(text, at, what)
        found.append(token)
        at += len(token.source)
    found.append(Token(TokenKind.END, "", len(text) + 1, ""))
    return found


def _token(text: str, at: int, what: str) -> Token:
    first = text[at]
    if first.isalpha():
        word = text[at : _end_of_word(text, at)]
        if word.upper() in KEYWORDS:
            return Token(TokenKind.KEYWORD, word.upper(), at + 1, word)
        return Token(TokenKind.WORD, word, at + 1, word)
    number = _NUMBER.match(text, at)
    if number is not None:
        return _number(number[0], text, at, what)
    if first in _CLOSING:
        return _read_quoted(text, at, what)
    if first == "@":
        end = _end_of_word(text, at + 1)
        if end == at + 1:
            raise unreadable(what, at + 1, "'@' has no parameter name after it")
        return Token(TokenKind.PARAMETER, text[at + 1 : end], at + 1, text[at:end])
    if text[at : at + 2] in _TWO_CHARACTERS:
        pair = text[at : at + 2]
        return Token(TokenKind.SYMBOL, "<>" if pair == "!=" else pair, at + 1, pair)
    if first in _ONE_CHARACTER:
        return Token(TokenKind.SYMBOL, first, at + 1, first)
    raise unreadable(
        what, at + 1, f"{first!r} is not allowed here; write a name that contains it in brackets, [like this]"
    )


def _end_of_word(text: str, at: int) -> int:
    while at < len(text) and (text[at] == "_" or text[at].isalpha() or text[at].isdecimal()):
        at += 1
    return at


def _number(source: str, text: str, at: int, what: str) -> Token:
    end = _end_of_word(text, at + len(source))
    if end > at + len(source):
        raise unreadable(what, at + 1, f"{text[at:end]!r} is neither a number nor a name")
    number: int | float
    if source.isdecimal():
        number = int(source)
        if number > LARGEST_INTEGER:
            raise unreadable(what, at + 1, f"the integer {source[:40]} is greater than {LARGEST_INTEGER}")
    else:
        number = float(source)
        if number == float("inf"):
            raise unreadable(what, at + 1, f"the number {source[:40]} is too large for a double")
    return Token(TokenKind.NUMBER, source, at + 1, source, number)


def _read_quoted(text: str, at: int, what: str) -> Token:
    """Read a string, a "quoted" name or a [delimited] name.

    Inside it, a doubled closing mark stands for one such character.
    """
    closing = _CLOSING[text[at]]
    end = at + 1
    while True:
        end = text.find(closing, end)
        if end < 0:
            raise unreadable(what, at + 1, f"{text[at]} is not closed by {closing}")
        if text[end + 1 : end + 2] != closing:
            break
        end += 2
    content = text[at + 1 : end].replace(closing * 2, closing)
    if closing == "'":
        return Token(TokenKind.STRING, content, at + 1, text[at : end + 1])
    if not content:
        raise unreadable(what, at + 1, "a property has an empty name")
    return Token(TokenKind.NAME, content, at + 1, text[at : end + 1])
