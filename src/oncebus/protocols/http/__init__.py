"""HTTP: Service Bus' REST operations on messages, health, metrics, dropped duplicates, and shared code."""

from oncebus.protocols.http.errors import Refused
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.server import HttpServer, server
from oncebus.protocols.listening import CannotListen, Tls, listen

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "server"]
