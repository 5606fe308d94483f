"""The newest batches: what the store ingested at once, and how long the steps before took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

MOST = 100


class IngestedBatch(NamedTuple):
    """Outbox entries that the store ingested together. Durations are in microseconds.

    `waited` is how long the oldest commit was on its way, `ingesting` how much of that came after its verdict.
    `at` is on the broker's monotonic clock.
    """

    at: int
    entries: int
    commits: int
    rows: int
    waited: int
    ingesting: int


class Batches:
    """The newest batches, newest first."""

    def __init__(self) -> None:
        self._newest: deque[IngestedBatch] = deque(maxlen=MOST)

    def __iter__(self) -> Iterator[IngestedBatch]:
        return reversed(self._newest)

    def add(self, batch: IngestedBatch) -> None:
        """Add a batch, and forget the oldest if there are too many. Batches without rows, pulses, are left out."""
        if batch.rows:
            self._newest.append(batch)
