"""Numbers that count on past their end: 32 bits, as transfers, deliveries and delivery counts are numbered.

Which of two comes first is told by the shorter way round (RFC 1982), so it holds while they lie less than half the
circle apart.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def after(number: int, steps: int = 1) -> int:
    """The number so many steps on."""
    return (number + steps) & MASK


def ahead(number: int, other: int) -> int:
    """How many steps `other` lies ahead of `number`; behind it, if negative."""
    return ((other - number + _HALF) & MASK) - _HALF


def lies_within(number: int, first: int, last: int) -> bool:
    """Whether a number is met on the way from `first` up to `last`, both counted, however long that way is."""
    return (number - first) & MASK <= (last - first) & MASK
