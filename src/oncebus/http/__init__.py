"""HTTP: Service Bus' REST operations on messages, health, metrics and the record of drops, over a broker."""

from oncebus.http.app import make_app
from oncebus.http.errors import Refused
from oncebus.http.limits import Limits
from oncebus.http.server import CannotListen, HttpServer, Tls, listen, server

__all__ = ["CannotListen", "HttpServer", "Limits", "Refused", "Tls", "listen", "make_app", "server"]
