"""Whether all is well: the pipeline was heard of a moment ago, and nothing waits for it too long.

A row for no one goes through an idle pipeline every few seconds, so silence always means trouble.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from oncebus.broker.core import Core
from oncebus.durations import SECOND
from oncebus.http.limits import Limits

HEALTHY = "Service is healthy."
_MOST_LOOKS = 1000


class Health:
    """Judges a broker. How long the oldest commit has waited is known from the looks taken before, at most one each
    second is remembered: it is at least what is found."""

    def __init__(self, core: Core, limits: Limits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._limits = limits
        self._monotonic = monotonic
        # (when, the newest commit then)
        self._looks: deque[tuple[float, int]] = deque(maxlen=_MOST_LOOKS)

    def ailment(self) -> str | None:
        """What is wrong, in words that tell an outsider nothing of the inside; None where all is well."""
        if self._core.trouble is not None:
            return "What the pipeline has judged cannot be taken."
        silence = self.silence
        if silence * SECOND > self._limits.heartbeat:
            return f"The pipeline has been silent for {silence:.0f} seconds."
        waiting = self.oldest_waiting()
        if waiting * SECOND > self._limits.lag:
            return f"The oldest message has waited for the pipeline for {waiting:.0f} seconds."
        return None

    @property
    def silence(self) -> float:
        """Seconds since something came out of the pipeline."""
        return self._monotonic() - self._core.last_taken_at

    def oldest_waiting(self) -> float:
        """Seconds that the oldest commit in the pipeline has been there, as far as is known."""
        now, taken = self._monotonic(), self._core.progress.position
        while self._looks and self._looks[0][1] <= taken:
            self._looks.popleft()
        newest = self._core.acceptor.last_commit
        if newest > taken and (not self._looks or now - self._looks[-1][0] >= 1.0):
            self._looks.append((now, newest))
        return now - self._looks[0][0] if self._looks else 0.0
