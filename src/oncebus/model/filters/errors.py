"""Errors in the text of a rule, and in its evaluation on a message."""

from __future__ import annotations

from oncebus.values.errors import ErrorKind, OncebusError


class BadRule(OncebusError, ValueError):
    """A filter or an action is invalid. `position` counts characters from 1; it is 0 if the error has no position."""

    kind = ErrorKind.BAD_REQUEST

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self) -> tuple[type[BadRule], tuple[str, int]]:
        return BadRule, (str(self), self.position)


def unreadable(what: str, position: int, problem: str) -> BadRule:
    """Return the error for a text that cannot be parsed. `what` is the kind of text; `position` counts from 1."""
    return BadRule(f"The {what} cannot be read at position {position}: {problem}.", position)


class EvaluationFailure(Exception):
    """A filter or an action has no result for a message. `oncebus.model.filters.routing` reports it."""
