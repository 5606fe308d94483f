"""What can be wrong with the text of a rule, and with its evaluation on a message."""

from __future__ import annotations

from oncebus.errors import OncebusError


class BadRule(OncebusError, ValueError):
    """A filter or an action cannot be accepted. `position` counts characters from 1; 0 where there is no one place."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self) -> tuple[type[BadRule], tuple[str, int]]:
        return BadRule, (str(self), self.position)


class EvaluationFailure(Exception):
    """Raised and caught inside the package and by who applies its results: why a rule has no result for a message."""
