"""Defines the errors of the connector. Each message is one line, and none contains a secret."""

from __future__ import annotations

from oncebus.errors import OncebusError


class BadOption(OncebusError, ValueError):
    """An option is missing, unknown or has a wrong value."""


class BadColumn(OncebusError, ValueError):
    """A DataFrame has a column that a message does not have, or a column of a wrong type."""


class BadRow(OncebusError, ValueError):
    """A row cannot become a message."""


class BadSpool(OncebusError):
    """The spool is used by another query, or is not the one that the checkpoint needs."""


class ServiceBusFailure(OncebusError):
    """Service Bus refused an operation, or stayed away for too long."""
