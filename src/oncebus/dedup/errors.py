"""The error of a run."""

from __future__ import annotations

from oncebus.errors import OncebusError


class DedupError(OncebusError, ValueError):
    """A run cannot do what its request asks for."""
