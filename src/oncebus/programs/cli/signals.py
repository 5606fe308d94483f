"""What the commands do when they are asked to end."""

from __future__ import annotations

import signal
from types import FrameType


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what the command has begun is undone or left whole."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
