"""Errors of the broker itself, independent of an entity, and the texts that every protocol gives to its clients."""

from __future__ import annotations

from oncebus.entities import QuotaExceeded
from oncebus.errors import OncebusError

# Texts for clients, instead of those of errors that only the operator may see: these name files and paths.
NO_ROOM = "The server is busy: there is no room on its disk. Please retry the operation later."
NOT_READY = "The server is busy. Please retry the operation later."
NOT_STORABLE = "The message contains a value that cannot be stored."
FAILED = "The service was unable to process the request; please retry the operation."
"""The text for an unexpected error."""


class BrokerClosed(OncebusError):
    """The broker is shutting down and accepts no more requests. The request changed nothing."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down. Please retry the operation later.")


class ServerBusy(QuotaExceeded):
    """The broker cannot accept more messages at the moment; the client should retry later."""
