"""Trouble: an error that keeps a part of the broker from working. It is shown as long as it lasts, and logged once."""

from __future__ import annotations

import logging

from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

BACK_OFF_SECONDS = 0.5
"""The pause before a part of the broker retries."""


class Trouble:
    """The trouble of one part of the broker, which retries for ever. `text` is None while there is no trouble."""

    def __init__(self, what: str) -> None:
        """`what` is the start of the log line; the error follows it."""
        self.text: str | None = None
        self._what = what

    def met(self, error: Exception) -> None:
        """Record that an attempt failed. Logs the error if it differs from the last one."""
        text = str(error) or type(error).__name__
        if text != self.text:
            unexpected = None if isinstance(error, OncebusError) else error
            log.error("%s: %s", self._what, text, exc_info=unexpected)
        self.text = text

    def over(self) -> None:
        """Record that an attempt succeeded."""
        self.text = None
