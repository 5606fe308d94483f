"""32-bit serial numbers that wrap around, as AMQP uses for transfers, deliveries and delivery counts.

The order of two numbers is that of the shorter way round (RFC 1982). It is valid while they are less than half the
range apart.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def after(number: int, steps: int = 1) -> int:
    """Return the number that is `steps` after `number`."""
    return (number + steps) & MASK


def ahead(number: int, other: int) -> int:
    """Return how many steps `other` is ahead of `number`; negative if it is behind."""
    return ((other - number + _HALF) & MASK) - _HALF


def lies_within(number: int, first: int, last: int) -> bool:
    """Return whether a number is in the range from `first` up to `last`, both included, whatever its length."""
    return (number - first) & MASK <= (last - first) & MASK
