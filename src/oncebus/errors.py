"""The root of what Oncebus raises on purpose, and how its texts show a value."""

from __future__ import annotations


class OncebusError(Exception):
    """An error the caller can fix. The message is one line: it names the thing and the value, and says what to do."""


def shown(value: object) -> str:
    """Return a value as errors show it: never so long that it hides what is wrong."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
