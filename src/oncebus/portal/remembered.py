"""How many ids the ledger remembers. It lies on the disk, and is looked at aside and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from oncebus.durations import SECOND
from oncebus.ledger import Ledger, LedgerSummary

log = logging.getLogger(__name__)

KEPT = 5 * SECOND


class Remembered:
    """The ledger's summary, at most some seconds old. `passed` is in microseconds, on a clock that nobody sets."""

    def __init__(self, folder: Path, passed: Callable[[], int]) -> None:
        self._folder = folder
        self._passed = passed
        self._looked: int | None = None
        self._summary: LedgerSummary | None = None
        self._looking = asyncio.Lock()

    async def summary(self) -> LedgerSummary | None:
        """What the ledger holds; None where it cannot be read just now."""
        async with self._looking:
            if self._looked is None or self._passed() - self._looked >= KEPT:
                self._summary = await asyncio.to_thread(self._look)
                self._looked = self._passed()
        return self._summary

    def _look(self) -> LedgerSummary | None:
        try:
            return Ledger.open(self._folder).summary()
        except Exception as error:
            # The pipeline writes there all the while. A page must not fail for a figure.
            log.warning("The ledger cannot be read: %s", error)
            return None
