"""The number of ids that the ledger remembers. It is read from disk in a thread, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from oncebus.ledger import LedgerSummary
from oncebus.values.durations import SECOND
from oncebus.values.threads import Threads

log = logging.getLogger(__name__)

KEPT = 5 * SECOND


class Remembered:
    """The ledger's summary, at most a few seconds old. `passed` is a monotonic clock that returns microseconds."""

    def __init__(self, read: Callable[[], LedgerSummary], passed: Callable[[], int], threads: Threads) -> None:
        self._threads = threads
        self._read = read
        self._passed = passed
        self._looked: int | None = None
        self._summary: LedgerSummary | None = None
        self._looking = asyncio.Lock()
        # The first generation that was seen. Each start of the pipeline claims the next one.
        self._first: int | None = None

    async def summary(self) -> LedgerSummary | None:
        """Return the ledger's summary; None if it cannot be read at the moment."""
        async with self._looking:
            if self._looked is None or self._passed() - self._looked >= KEPT:
                self._summary = await self._threads.run(self._look)
                self._looked = self._passed()
                if self._first is None and self._summary is not None and self._summary.generation:
                    self._first = self._summary.generation
        return self._summary

    @property
    def restarts(self) -> int:
        """Return how often the pipeline was started again since the first summary."""
        return 0 if self._summary is None or self._first is None else self._summary.generation - self._first

    def _look(self) -> LedgerSummary | None:
        try:
            return self._read()
        except Exception as error:
            # The pipeline writes to the ledger at the same time. A page must not fail because of one figure.
            log.warning("The ledger cannot be read: %s", error)
            return None
