"""Numbers in the protocol: channels and handles, and serial numbers.

Serial numbers have 32 bits and wrap around. AMQP uses them for transfers, deliveries and delivery counts. Of two
numbers, the later one is ahead by the shorter way around the circle (RFC 1982). This works while they are less than
half the range apart.
"""

from __future__ import annotations

import heapq

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def after(number: int, steps: int = 1) -> int:
    """Return the number that is `steps` after `number`."""
    return (number + steps) & MASK


def ahead(number: int, other: int) -> int:
    """Return how many steps `other` is ahead of `number`; negative if it is behind."""
    return ((other - number + _HALF) & MASK) - _HALF


def lies_within(number: int, first: int, last: int) -> bool:
    """Return whether a number is in the range from `first` to `last`, inclusive, even if it wraps around."""
    return (number - first) & MASK <= (last - first) & MASK


class FreeNumbers:
    """Allocates the lowest free number, from 0. The cost does not grow with the numbers in use."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._freed: list[int] = []

    @property
    def lowest(self) -> int:
        """Return the number that `take` would return."""
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
