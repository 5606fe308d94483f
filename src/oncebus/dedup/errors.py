"""The error of the dedup application."""

from __future__ import annotations

from oncebus.errors import OncebusError


class DedupError(OncebusError, ValueError):
    """A run cannot do what was requested."""
