"""Oncebus: exact, visible, cheap duplicate detection for messages."""

__version__ = "0.1.0"
