"""Says whether the consumers of a queue or a subscription are alive."""

from __future__ import annotations

from oncebus.broker.broker import Broker
from oncebus.durations import MINUTE
from oncebus.entities import Queue, Subscription
from oncebus.portal.wording import number, span

RECENT = MINUTE
"""A consumer over HTTP is not attached. It counts as alive for so long after it asked for messages."""


def consumer_state(broker: Broker, entity: Queue | Subscription, backlog: int) -> tuple[str, str]:
    """Return a word about the consumers of an entity, and its state: good, bad or empty.

    It is bad if messages wait and nobody receives them.
    """
    attached, asked = broker.receivers(entity), broker.received_at(entity)
    if attached:
        return number(attached), "good"
    if asked is not None and broker.clock.now() - asked < RECENT:
        return "polling", "good"
    text = "none" if asked is None else f"none for {span(max(broker.clock.now() - asked, 0))}"
    if entity.forward_to is not None:
        return "forwards", ""
    return text, "bad" if backlog else ""
