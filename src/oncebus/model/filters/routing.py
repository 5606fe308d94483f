"""Applies the rules of one subscription to one message, and returns the copies they make."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from oncebus.model.filters.action import CompiledAction
from oncebus.model.filters.filter import Condition, failure_text
from oncebus.model.filters.properties import MessageProperties

RULE_NAME = "RuleName"
"""The user property that names the rule, in copies that an action has changed."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A named filter, with or without an action."""

    name: str
    condition: Condition
    action: CompiledAction | None = None


@dataclass(frozen=True, slots=True)
class RuleCopy:
    """A message to put into the subscription.

    `rule` names the rule whose action changed it, or is None for the unchanged copy.
    """

    properties: MessageProperties
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Routed:
    """The copies of a message for one subscription, and a text for each rule that failed.

    The unchanged copy comes first, then the others in the order of their rules.
    """

    copies: list[RuleCopy]
    failures: list[str]


def failure_of(part: str, rule: str | None, error: str) -> str:
    """Return the text for a rule whose `part`, its filter or its action, had no result for a message."""
    return f"The {part} of rule {rule!r} failed: {error}."


def make_copies(rules: Iterable[CompiledRule], message: MessageProperties, seed: bytes) -> Routed:
    """Return the copies of a message that a subscription with these rules gets. Never raises.

    All matching rules without an action together make one unchanged copy. Each matching rule with an action makes a
    copy of its own, with the action's changes and the rule's name in `RuleName`. Every rule sees the original message.

    A rule that fails makes no copy and does not affect the other rules. The subscription's settings decide whether a
    failure also dead-letters the message.

    newid() derives its values from `seed`, and returns different values in each rule. The seed must be unique to this
    message in this subscription, and the same when the message is replayed.
    """
    made: list[RuleCopy] = []
    failures: list[str] = []
    unchanged = False
    for rule in rules:
        part = "filter"
        try:
            if not rule.condition.selects(message, _seed(seed, b"f", rule) if rule.condition.makes_ids else b""):
                continue
            if rule.action is None:
                unchanged = True
                continue
            part = "action"
            after = rule.action.apply(message, _seed(seed, b"a", rule))
        except Exception as error:
            failures.append(failure_of(part, rule.name, failure_text(error)))
        else:
            made.append(RuleCopy(MessageProperties(after.system, {**after.user, RULE_NAME: rule.name}), rule.name))
    if unchanged:
        made.insert(0, RuleCopy(message))
    return Routed(made, failures)


def _seed(seed: bytes, use: bytes, rule: CompiledRule) -> bytes:
    return struct.pack(">Ic", len(seed), use) + seed + rule.name.encode("utf-8", "surrogatepass")
