"""Applies the rules of one subscription to one message, and returns the copies they make."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from oncebus.model.filters.action import Action, Failure
from oncebus.model.filters.filter import Decision, Filter
from oncebus.model.filters.properties import Properties

RULE_NAME = "RuleName"
"""The user property that names the rule, in copies that an action has changed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A named filter, with or without an action."""

    name: str
    filter: Filter
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A message to put into the subscription.

    `rule` names the rule whose action changed it, or is None for the unchanged copy.
    """

    properties: Properties
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule that had no result for the message: its filter failed, or its action failed after the filter matched."""

    rule: str
    error: str


@dataclass(frozen=True, slots=True)
class Routed:
    """The copies of a message for one subscription, and the rules that failed.

    The unchanged copy comes first, then the others in the order of their rules.
    """

    copies: list[Copy]
    failures: list[RuleFailure]


def action_failure(rule: str | None, error: object) -> str:
    """Return the text for a message whose copy the action of a rule could not change."""
    return f"The action of rule {rule!r} failed: {error}."


def copies(rules: Iterable[Rule], properties: Properties, seed: bytes) -> Routed:
    """Return the copies of a message that a subscription with these rules gets. Never raises.

    All matching rules without an action together make one unchanged copy. Each matching rule with an action makes a
    copy of its own, with the action's changes and the rule's name in `RuleName`. Every rule sees the original message.

    A rule that fails makes no copy and does not affect the other rules. The subscription's settings decide whether a
    failure also dead-letters the message.

    newid() derives its values from `seed`, and returns different values in each rule. The seed must be unique to this
    message in this subscription, and the same when the message is replayed.
    """
    made: list[Copy] = []
    failures: list[RuleFailure] = []
    unchanged = False
    for rule in rules:
        outcome = rule.filter.evaluate(properties, _seed(seed, b"f", rule) if rule.filter.makes_ids else b"")
        if outcome.decision is Decision.ERROR:
            failures.append(RuleFailure(rule.name, f"The filter of rule {rule.name!r} failed: {outcome.error}."))
        elif outcome.decision is Decision.NO_MATCH:
            continue
        elif rule.action is None:
            unchanged = True
        else:
            result = rule.action.apply(properties, _seed(seed, b"a", rule))
            if isinstance(result, Failure):
                failures.append(RuleFailure(rule.name, action_failure(rule.name, result.error)))
            else:
                changed = Properties(result.system, {**result.user, RULE_NAME: rule.name})
                made.append(Copy(changed, rule.name))
    if unchanged:
        made.insert(0, Copy(properties))
    return Routed(made, failures)


def _seed(seed: bytes, use: bytes, rule: Rule) -> bytes:
    return struct.pack(">Ic", len(seed), use) + seed + rule.name.encode("utf-8", "surrogatepass")
