"""What the broker itself refuses, whatever the entity."""

from __future__ import annotations

from oncebus.agreement import DataMismatch
from oncebus.entities import QuotaExceeded
from oncebus.errors import OncebusError

__all__ = ["BrokerClosed", "DataMismatch", "ServerBusy"]


class BrokerClosed(OncebusError):
    """The broker is being stopped and takes no more requests. Nothing has happened."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down. Please retry the operation later.")


class ServerBusy(QuotaExceeded):
    """The broker takes nothing more for now."""
