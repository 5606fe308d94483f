"""Azure Service Bus over AMQP: translates between its clients and the broker."""

from oncebus.protocols.servicebus.limits import AmqpLimits
from oncebus.protocols.servicebus.server import ServiceBusServer, make_server

__all__ = ["AmqpLimits", "ServiceBusServer", "make_server"]
