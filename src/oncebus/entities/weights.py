"""How much a message weighs that a topic copies for many subscriptions: the copies have to fit into memory too.

Weight bounds what goes together: the messages of one commit in the gateway, the commits of one micro-batch in Spark.
"""

from __future__ import annotations

from oncebus.entities.catalogue import Catalogue
from oncebus.entities.descriptions import Topic

LIGHT_COPIES = 8
"""A message with so many copies weighs as much as one; beyond that its weight grows with them."""


def copies_by_topic(catalogue: Catalogue, above: int = LIGHT_COPIES) -> dict[int, int]:
    """How many copies there may be of a message, for each topic that makes more than `above`."""
    found = {}
    for entity in catalogue.entities.values():
        if isinstance(entity, Topic):
            subscriptions = catalogue.subscriptions_of(entity)
            # Each rule with an action makes a copy of its own.
            actions = sum(rule.action is not None for each in subscriptions for rule in each.rules)
            if len(subscriptions) + actions > above:
                found[entity.id] = len(subscriptions) + actions
    return found


def weight(size: int, copies: int) -> int:
    """What counts of so many bytes that are copied so often."""
    return size * max(copies, LIGHT_COPIES) // LIGHT_COPIES
