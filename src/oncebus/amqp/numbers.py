"""Allocates numbers for channels and handles."""

from __future__ import annotations

import heapq


class Numbers:
    """Allocates the lowest free number, from 0. The cost does not grow with the numbers in use."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._freed: list[int] = []

    @property
    def lowest(self) -> int:
        """The number that `take` would return."""
        return self._freed[0] if self._freed else self._next

    def take(self) -> int:
        """Allocate and return the lowest free number."""
        if self._freed:
            return heapq.heappop(self._freed)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        """Free a number that was allocated."""
        heapq.heappush(self._freed, number)
