"""The application behind `oncebus dedup`: it copies the rows of files without duplicates, and lists the duplicates."""

from oncebus.values.errors import OncebusError


class DedupError(OncebusError, ValueError):
    """A run cannot do what was requested."""
