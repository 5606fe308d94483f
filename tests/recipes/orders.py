"""Orders that a producer sends, some of them twice, and what the reference model keeps of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import NamedTuple

from tests.reference import Message, Reference

START = 1_700_000_000_000
DAY = 86_400 * 1_000_000
"""The window of the recipes, in microseconds."""
LATENESS = 3_600 * 1_000_000
FAR_FUTURE = 2**60


class Order(NamedTuple):
    """One copy of an order. Every copy has a time of its own, in milliseconds since 1970."""

    id: str
    milliseconds: int
    body: str

    @property
    def text_of_time(self) -> str:
        """Return the time in ISO 8601."""
        return datetime.fromtimestamp(self.milliseconds / 1000, UTC).isoformat()


class Shop:
    """Produces orders. `sent` has all copies so far."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ids = 0
        self.sent: list[Order] = []

    def wave(self, size: int) -> list[Order]:
        """Return about a third copies of the last few orders, a third copies of any earlier ones, and new orders."""
        made: list[Order] = []
        for _ in range(size):
            known = self.sent + made
            kind = self._chance.randrange(3) if known else 0
            if kind == 0:
                self._ids += 1
                name = f"order-{self._ids}"
            else:
                name = self._chance.choice(known[-10:] if kind == 1 else known).id
            made.append(Order(name, START + 1000 * len(known), f"coffee for {name}"))
        self.sent += made
        return made

    def kept(self) -> list[Order]:
        """Return the copies that the reference model finds to be new, in order.

        Times only grow and are less than a window apart, so that the borders of batches do not matter.
        """
        orders = {Message(each.id, each.milliseconds * 1000, at, DAY): each for at, each in enumerate(self.sent)}
        verdicts = Reference(LATENESS).batch(list(orders), FAR_FUTURE)
        new = [each for message, each in orders.items() if not verdicts[message].is_duplicate]
        assert len({each.id for each in new}) == len(new) < len(orders), "an id is not new once, or none is repeated"
        return new
