"""HTTP: Service Bus' REST operations on messages, health, metrics and the record of drops; what other fronts share."""

from oncebus.http.errors import Refused
from oncebus.http.limits import Limits
from oncebus.http.server import CannotListen, HttpServer, Tls, listen, server

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "server"]
