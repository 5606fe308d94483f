"""HTTP: Service Bus' REST operations on messages, health, metrics, the record of drops, and code for other fronts."""

from oncebus.http.errors import Refused
from oncebus.http.limits import Limits
from oncebus.http.server import HttpServer, server
from oncebus.listening import CannotListen, Tls, listen

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "server"]
