"""Health: the broker is healthy if something came out of the pipeline lately and nothing waits for it too long.

An idle pipeline gets a pulse every few seconds, so silence always means trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncebus.broker.broker import Broker
from oncebus.durations import SECOND

HEALTHY = "Service is healthy."
LIVING = "Service is live."
"""It accepts messages and answers requests; whether messages flow is another matter."""


class Health:
    """The health of a broker.

    In microseconds, `lag` is how long the oldest message may wait for the pipeline, and `heartbeat` how long the
    pipeline may be silent.
    """

    def __init__(
        self, broker: Broker, *, lag: int, heartbeat: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pipeline = broker.pipeline
        self._lag = lag
        self._heartbeat = heartbeat
        self._monotonic = monotonic

    def problem(self) -> str | None:
        """Return why the broker is unhealthy; None if it is healthy. Anyone may read it, so it reveals no internals."""
        if self._pipeline.trouble is not None:
            return "The broker cannot do a part of its work; the log says why."
        silence = self.silence
        if silence * SECOND > self._heartbeat:
            return f"The pipeline has been silent for {silence:.0f} seconds."
        waiting = self._pipeline.oldest_wait
        if waiting > self._lag:
            return f"The oldest message has waited for the pipeline for {waiting / SECOND:.0f} seconds."
        return None

    @property
    def silence(self) -> float:
        """Return the seconds since something came out of the pipeline."""
        return self._monotonic() - self._pipeline.last_ingest
