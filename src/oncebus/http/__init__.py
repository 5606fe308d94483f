"""HTTP: Service Bus' REST operations on messages, health, metrics, dropped duplicates, and shared code."""

from oncebus.http.errors import Refused
from oncebus.http.limits import Limits
from oncebus.http.server import HttpServer, server
from oncebus.listening import CannotListen, Tls, listen

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "server"]
