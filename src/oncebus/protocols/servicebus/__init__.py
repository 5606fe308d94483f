"""Azure Service Bus over AMQP: translates between its clients and the broker."""

from oncebus.protocols.servicebus.limits import Limits
from oncebus.protocols.servicebus.server import ServiceBusServer, make_server

__all__ = ["Limits", "ServiceBusServer", "make_server"]
