"""Health: the broker is healthy if the pipeline produced output recently and no message has waited too long for it.

An idle pipeline gets a pulse every few seconds, so silence always means trouble. A pipeline on the same machine holds a
lock while it runs, so its end shows at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncebus.broker.broker import Broker
from oncebus.values.durations import SECOND

HEALTHY = "Service is healthy."
LIVING = "Service is live."
"""It accepts messages and answers requests. This does not say whether the pipeline processes messages."""


class Health:
    """The health of a broker.

    `lag` is how long the oldest message may wait for the pipeline, and `heartbeat` is how long the pipeline may produce
    no output. Both are in microseconds.
    """

    def __init__(
        self, broker: Broker, *, lag: int, heartbeat: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pipeline = broker.pipeline
        self._lag = lag
        self._heartbeat = heartbeat
        self._monotonic = monotonic
        self._was_running = False
        self._ended_at: float | None = None

    def problem(self) -> str | None:
        """Return why the broker is unhealthy, or None if it is healthy.

        The text is public, so it reveals no internals.
        """
        if self._pipeline.trouble is not None:
            return "A part of the broker is failing; the log says why."
        if self._has_ended():
            return "The pipeline has ended. It is starting again."
        silence = self.silence
        if silence * SECOND > self._heartbeat:
            return f"The pipeline has produced no output for {silence:.0f} seconds."
        waiting = self._pipeline.oldest_wait
        if waiting > self._lag:
            return f"The oldest message has waited for the pipeline for {waiting / SECOND:.0f} seconds."
        return None

    def _has_ended(self) -> bool:
        """Return whether the pipeline was seen to run, and has produced no output since it was seen to have ended."""
        if self._pipeline.is_running():
            self._was_running = True
        elif self._was_running:
            self._ended_at = self._monotonic()
        return self._ended_at is not None and self._pipeline.last_ingest <= self._ended_at

    @property
    def silence(self) -> float:
        """Return the seconds since the pipeline last produced output."""
        return self._monotonic() - self._pipeline.last_ingest
