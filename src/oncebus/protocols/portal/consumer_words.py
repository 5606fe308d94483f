"""Says whether the consumers of a queue or a subscription are alive."""

from __future__ import annotations

from oncebus.broker.broker import Broker
from oncebus.model.entities import Queue, Subscription
from oncebus.protocols.portal.wording import number, span

POLLING, FORWARDS = "polling", "forwards"


def consumer_state(broker: Broker, entity: Queue | Subscription, backlog: int) -> tuple[str, str]:
    """Return a word about the consumers of an entity, and its state: good, bad or empty.

    It is bad if messages wait and nobody receives them.
    """
    attached, asked = broker.consumers.attached(entity.id), broker.received_at(entity)
    if attached:
        return number(attached), "good"
    if broker.consumers.is_polled(entity.id):
        return POLLING, "good"
    text = "none" if asked is None else f"none for {span(max(broker.clock.now() - asked, 0))}"
    if entity.forward_to is not None:
        return FORWARDS, ""
    return text, "bad" if backlog else ""
