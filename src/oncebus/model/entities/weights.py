"""The weight of messages: their size, or more if a topic copies them for many subscriptions, or its rules cost much.

All copies must fit into memory, and other messages wait while rules are evaluated. The weight limits the messages of
one commit in the gateway, and the commits of one micro-batch in Spark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from oncebus.model.entities.catalogue import Catalogue
from oncebus.model.entities.descriptions import Rule, SqlFilter, Subscription, Topic
from oncebus.model.filters.budget import STEPS_PER_BYTE, STEPS_PER_RULE, steps_of_messages
from oncebus.model.filters.like import LONGEST_PATTERN

LIGHT_COPIES = 8
"""Up to this number of copies, a message weighs its size. Above it, the weight grows with the number of copies."""
STEPS_PER_WEIGHT = 16
"""The steps of rules that take as long as the pipeline takes for a byte of a message."""

_LIKE = re.compile(r"\blike\s*('(?:[^']|'')*')?", re.IGNORECASE)
_STEPS_OF_AN_ACTION = 16
"""The steps of an action for each byte of a message. It copies the properties."""


class TopicCost(NamedTuple):
    """What a topic does with each message: the copies that it makes, and what its rules cost at most."""

    copies: int = 1
    rules: int = 0
    steps_per_byte: int = 0

    def steps(self, messages: int, size: int) -> int:
        """Return the steps of the rules on messages with a total of `size` bytes, beyond a few for each rule.

        No message gets more than its budget.
        """
        wanted = messages * STEPS_PER_RULE * self.rules + self.steps_per_byte * size
        return min(wanted, steps_of_messages(messages, size, self.rules)) if self.steps_per_byte else 0


LIGHT = TopicCost()
"""The cost of a queue."""


def costs_by_topic(catalogue: Catalogue, above: int = LIGHT_COPIES) -> dict[int, TopicCost]:
    """Return the costs by topic id, for topics that make more than `above` copies, and those with costly rules."""
    found = {}
    for entity in catalogue.entities.values():
        if isinstance(entity, Topic):
            cost = _cost(catalogue.subscriptions_of(entity))
            if cost.copies > above or cost.steps_per_byte > STEPS_PER_WEIGHT:
                found[entity.id] = cost
    return found


def weight(messages: int, size: int, cost: TopicCost) -> int:
    """Return the weight of messages that have `size` bytes in total."""
    return size * max(cost.copies, LIGHT_COPIES) // LIGHT_COPIES + cost.steps(messages, size) // STEPS_PER_WEIGHT


def _cost(subscriptions: tuple[Subscription, ...]) -> TopicCost:
    rules = [rule for each in subscriptions for rule in each.rules]
    # Each rule with an action makes a copy of its own.
    copies = len(subscriptions) + sum(rule.action is not None for rule in rules)
    return TopicCost(copies, len(rules), min(sum(map(_steps_per_byte, rules)), STEPS_PER_BYTE))


def _steps_per_byte(rule: Rule) -> int:
    steps = 0 if rule.action is None else _STEPS_OF_AN_ACTION
    return steps + (_steps_of_likes(rule.filter.expression) if isinstance(rule.filter, SqlFilter) else 0)


@lru_cache(maxsize=10_000)
def _steps_of_likes(expression: str) -> int:
    """Return an upper bound for the steps of a filter for each character of the values that it reads.

    A pattern that is not in the text may come from the message. Then it has any length.
    """
    patterns = [found[1] for found in _LIKE.finditer(expression)]
    return sum(
        LONGEST_PATTERN if pattern is None else len(pattern) if "_" in pattern else 1 + len(pattern) // 32
        for pattern in patterns
    )
