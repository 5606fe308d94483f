"""Errors of the broker itself, independent of an entity."""

from __future__ import annotations

from oncebus.model.entities import QuotaExceeded
from oncebus.values.errors import ErrorKind, OncebusError


class BrokerClosed(OncebusError):
    """The broker is shutting down and accepts no more requests. The request changed nothing."""

    kind = ErrorKind.BUSY

    def __init__(self) -> None:
        super().__init__("The server is shutting down. Please retry the operation later.")


class ServerBusy(QuotaExceeded):
    """The broker cannot accept more messages at the moment; the client should retry later."""

    kind = ErrorKind.BUSY
