"""What keeps a part of the broker from its work: shown for as long as it lasts, logged once."""

from __future__ import annotations

import logging

from oncebus.errors import OncebusError

log = logging.getLogger(__name__)


class Trouble:
    """The trouble of one part, which tries again for ever. `text` is None while there is none."""

    def __init__(self, what: str) -> None:
        """`what` is the sentence of the log that the text follows."""
        self.text: str | None = None
        self._what = what

    def met(self, error: Exception) -> None:
        """An attempt has failed."""
        text = str(error) or type(error).__name__
        if text != self.text:
            unexpected = None if isinstance(error, OncebusError) else error
            log.error("%s: %s", self._what, text, exc_info=unexpected)
        self.text = text

    def over(self) -> None:
        """An attempt has succeeded."""
        self.text = None
