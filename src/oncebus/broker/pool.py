"""Memory that all clients share, so that none of them can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from oncebus.model.entities import QuotaExceeded


class Pool:
    """Bytes in memory, by their holder. A holder may have no more than is still free.

    So one alone gets half, two get a third each, and there is always room for another. (Switches share their buffers in
    this way: a dynamic threshold.)
    """

    def __init__(self) -> None:
        self.held = 0
        self._by_holder: Counter[Hashable] = Counter()

    def take(self, holder: Hashable, size: int, most: int) -> None:
        """Add to the bytes of a holder, of `most` in all. Raises `QuotaExceeded`."""
        own = self._by_holder[holder] + size
        if own > most - self.held:
            all_hold = f"those of all keys hold {self.held} of {most}"
            raise QuotaExceeded(f"The transactions of one key cannot hold {own} bytes now: {all_hold}.")
        self._by_holder[holder] = own
        self.held += size

    def give_back(self, holder: Hashable, size: int) -> None:
        """Subtract from the bytes of a holder."""
        self.held -= size
        self._by_holder[holder] -= size
        if not self._by_holder[holder]:
            del self._by_holder[holder]
