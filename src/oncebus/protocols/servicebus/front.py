"""The objects that all connections share."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncebus.broker.background import Background
from oncebus.broker.broker import Broker, Received
from oncebus.model.access import Guard
from oncebus.model.entities import NO_LIMIT, Entity, Subscription
from oncebus.protocols.servicebus.errors import AmqpRefused, refusal_of
from oncebus.protocols.servicebus.limits import AmqpLimits
from oncebus.protocols.servicebus.messages import outgoing


@dataclass
class ServiceBusFront:
    """The objects that all connections share. `host` is our name for clients that do not name the host they open."""

    broker: Broker
    guard: Guard
    limits: AmqpLimits
    host: str
    tasks: Background = field(default_factory=Background)
    _last_refused: tuple[Exception, AmqpRefused] | None = None

    def now(self) -> int:
        """Return the time for tokens, in microseconds since 1970."""
        return self.broker.clock.token_time()

    def refuse_once(self, error: Exception) -> AmqpRefused:
        """Translate an error that many links may get one after the other. The translation may log it: once for all."""
        if self._last_refused is None or self._last_refused[0] is not error:
            self._last_refused = error, AmqpRefused(*refusal_of(error, self.host))
        return self._last_refused[1]

    def encode(self, received: Received, entity: Entity | None, *, is_peeked: bool = False) -> bytes:
        """Return a message of an entity, encoded for a client."""
        message, path = received.message, None
        if message.source not in (None, message.entity):
            # A dead letter that was forwarded.
            source = self.broker.catalogue.entity(message.source)
            path = None if source is None else source.path
        return outgoing(
            received,
            path,
            is_peeked=is_peeked,
            is_copy=isinstance(entity, Subscription),
            default_ttl=NO_LIMIT if entity is None else entity.default_message_time_to_live,
        )
