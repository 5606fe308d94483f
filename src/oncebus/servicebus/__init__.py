"""Azure Service Bus over AMQP: translates what its clients say to the broker, and back."""

from oncebus.servicebus.limits import Limits
from oncebus.servicebus.server import Counts, ServiceBusServer, make_server

__all__ = ["Counts", "Limits", "ServiceBusServer", "make_server"]
