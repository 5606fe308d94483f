"""Defines the base class of the errors that Oncebus raises on purpose, and shortens values for error texts."""

from __future__ import annotations


class OncebusError(Exception):
    """An error the caller can fix. The message is one line: it names the thing and the value, and says what to do."""


def shown(value: object) -> str:
    """Return the repr of a value for an error text, shortened to 100 characters."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
