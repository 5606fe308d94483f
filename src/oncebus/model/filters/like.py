"""Matching with LIKE. The time is at most proportional to value length times pattern length, for any pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

LONGEST_PATTERN = 1024
_STEPS_PER_CHARACTER = 500

_ANY_STRING = 0
_ANY_CHARACTER = 1


class BadPattern(ValueError):
    """The pattern is too long or ends in its escape character, or the escape is not exactly one character."""


def steps_to_read(pattern: str) -> int:
    """Return the cost, in steps, of compiling a pattern."""
    return _STEPS_PER_CHARACTER * min(len(pattern), LONGEST_PATTERN)


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled pattern, together with the cost of matching it."""

    matches: Callable[[str], bool]
    steps_at_least: int
    steps_per_character: int

    def __call__(self, value: str) -> bool:
        """Return whether the value matches."""
        return self.matches(value)

    def steps(self, value: str) -> int:
        """Return an upper bound for the cost of matching the value."""
        return self.steps_at_least + self.steps_per_character * len(value)


@lru_cache(maxsize=512)
def matcher(pattern: str, escape: str | None) -> Matcher:
    """Return the matcher of a pattern, in which % matches any string and _ matches any one character.

    Raises `BadPattern`.
    """
    pieces: list[list[str | int]] = [[]]
    for item in _items(pattern, escape):
        if item == _ANY_STRING:
            pieces.append([])
        else:
            pieces[-1].append(item)
    if len(pieces) == 1:
        return Matcher(_whole(pieces[0]), len(pattern), 0)
    # A regular expression with several .* would backtrack through every way to divide the value. Taking the first
    # place where each piece between two % fits is enough, and needs no backtracking.
    first, *middle, last = pieces
    wanted = [piece for piece in middle if piece]
    searches = [_search(piece) for piece in wanted]
    starts, ends = _at(first), _at(last)
    shortest, tail = len(first) + len(last), len(last)

    def matches(value: str) -> bool:
        if len(value) < shortest or not starts(value, 0) or not ends(value, len(value) - tail):
            return False
        at, end = len(first), len(value) - tail
        for search in searches:
            at = search(value, at, end)
            if at < 0:
                return False
        return True

    return Matcher(matches, len(pattern), max(map(_steps, wanted), default=0))


def _steps(piece: list[str | int]) -> int:
    """Return an upper bound for the cost of trying to match a piece at one position of a value."""
    return 1 + (len(piece) if _ANY_CHARACTER in piece else len(piece) // 32)


def _items(pattern: str, escape: str | None) -> list[str | int]:
    if escape is not None and len(escape) != 1:
        raise BadPattern(f"ESCAPE takes one character, not {escape[:40]!r}")
    if len(pattern) > LONGEST_PATTERN:
        raise BadPattern(f"LIKE takes a pattern of at most {LONGEST_PATTERN} characters, not {len(pattern)}")
    items: list[str | int] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise BadPattern(f"the pattern {pattern[:40]!r} ends in its escape character")
            items.append(literal)
        elif character == "%":
            items.append(_ANY_STRING)
        elif character == "_":
            items.append(_ANY_CHARACTER)
        else:
            items.append(character)
    return items


def _literal(piece: list[str | int]) -> str | None:
    return None if _ANY_CHARACTER in piece else "".join(str(item) for item in piece)


def _expression(piece: list[str | int]) -> re.Pattern[str]:
    return re.compile("".join(re.escape(item) if isinstance(item, str) else "." for item in piece), re.DOTALL)


def _whole(piece: list[str | int]) -> Callable[[str], bool]:
    literal = _literal(piece)
    if literal is not None:
        return literal.__eq__
    expression = _expression(piece)
    return lambda value: expression.fullmatch(value) is not None


def _at(piece: list[str | int]) -> Callable[[str, int], bool]:
    literal = _literal(piece)
    if literal is not None:
        return lambda value, at: value.startswith(literal, at)
    expression = _expression(piece)
    return lambda value, at: expression.match(value, at) is not None


def _search(piece: list[str | int]) -> Callable[[str, int, int], int]:
    """Return a function that finds the piece between two positions of a value.

    It returns the position after the match, or -1.
    """
    literal = _literal(piece)
    size = len(piece)
    if literal is not None:

        def find(value: str, at: int, end: int) -> int:
            found = value.find(literal, at, end)
            return found if found < 0 else found + size

        return find
    expression = _expression(piece)

    def search(value: str, at: int, end: int) -> int:
        found = expression.search(value, at, end)
        return -1 if found is None else found.end()

    return search
