"""Whether all is well: the pipeline was heard of a moment ago, and nothing waits for it too long.

A row for no one goes through an idle pipeline every few seconds, so silence always means trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncebus.broker.broker import Broker
from oncebus.durations import SECOND
from oncebus.http.limits import Limits

HEALTHY = "Service is healthy."


class Health:
    """Judges a broker."""

    def __init__(self, broker: Broker, limits: Limits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pipeline = broker.pipeline
        self._limits = limits
        self._monotonic = monotonic

    def ailment(self) -> str | None:
        """What is wrong, in words that tell an outsider nothing of the inside; None where all is well."""
        if self._pipeline.trouble is not None:
            return "The broker cannot do a part of its work; the log says why."
        silence = self.silence
        if silence * SECOND > self._limits.heartbeat:
            return f"The pipeline has been silent for {silence:.0f} seconds."
        waiting = self._pipeline.oldest_wait
        if waiting > self._limits.lag:
            return f"The oldest message has waited for the pipeline for {waiting / SECOND:.0f} seconds."
        return None

    @property
    def silence(self) -> float:
        """Seconds since something came out of the pipeline."""
        return self._monotonic() - self._pipeline.last_ingest
