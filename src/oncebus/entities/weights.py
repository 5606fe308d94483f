"""The weight of a message: its size, or more if a topic copies it for many subscriptions.

All copies must fit into memory.

The weight limits the messages of one commit in the gateway, and the commits of one micro-batch in Spark.
"""

from __future__ import annotations

from oncebus.entities.catalogue import Catalogue
from oncebus.entities.descriptions import Topic

LIGHT_COPIES = 8
"""Up to this number of copies, a message weighs its size. Above it, the weight grows with the number of copies."""


def copies_by_topic(catalogue: Catalogue, above: int = LIGHT_COPIES) -> dict[int, int]:
    """Return the maximum number of copies of a message, by topic id, for topics that make more than `above`."""
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
    """Return the weight of a message that has `size` bytes and is copied `copies` times."""
    return size * max(copies, LIGHT_COPIES) // LIGHT_COPIES
