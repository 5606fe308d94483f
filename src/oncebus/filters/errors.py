"""The one error that the text of a rule can cause."""

from __future__ import annotations

from oncebus.errors import OncebusError


class BadRule(OncebusError, ValueError):
    """A filter or an action cannot be accepted. `position` counts characters from 1; 0 where there is no one place."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self) -> tuple[type[BadRule], tuple[str, int]]:
        return BadRule, (str(self), self.position)
