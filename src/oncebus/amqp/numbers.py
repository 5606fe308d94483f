"""Numbers for channels and handles."""

from __future__ import annotations

import heapq


class Numbers:
    """Gives the lowest number that is free, from 0, in a time that does not grow with those in use."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._freed: list[int] = []

    @property
    def lowest(self) -> int:
        """The one that `take` would give."""
        return self._freed[0] if self._freed else self._next

    def take(self) -> int:
        """The lowest free number, which is in use then."""
        if self._freed:
            return heapq.heappop(self._freed)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        """Give back a number that was taken."""
        heapq.heappush(self._freed, number)
