"""HTTP: Service Bus' REST operations on messages, health, metrics and the record of drops; what other fronts share."""

from oncebus.http.errors import Refused
from oncebus.http.limits import Limits
from oncebus.http.server import HttpServer, server
from oncebus.listening import CannotListen, Tls, listen

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "server"]
