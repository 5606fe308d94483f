"""What one subscription takes of one message: its rules in order, and the copies they make."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from oncebus.filters.action import Action, Failure
from oncebus.filters.filter import Filter, Verdict
from oncebus.filters.properties import Properties

RULE_NAME = "RuleName"
"""The user property that names the rule in a copy that an action made."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A named filter, with or without an action."""

    name: str
    filter: Filter
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A message to put into the subscription. `rule` is None for the unchanged one."""

    properties: Properties
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule that had no result for the message: its filter, or its action after the filter had selected."""

    rule: str
    error: str


@dataclass(frozen=True, slots=True)
class Routed:
    """The copies in the order of the rules, the unchanged one first; and beside them what failed."""

    copies: list[Copy]
    failures: list[RuleFailure]


def copies(rules: Iterable[Rule], properties: Properties, seed: bytes) -> Routed:
    """What a subscription with these rules takes of a message with these properties. Nothing is raised.

    However many rules without an action select the message, they make one unchanged copy. Each rule with an action that
    selects it makes a copy of its own, with the action's changes and the rule's name in `RuleName`. Every rule sees the
    message as it came.

    A rule that fails makes no copy and does not keep the others from making theirs; what becomes of the message then
    (nothing, or a dead letter) is the subscription's choice.

    `seed` must tell this message in this subscription from all others and be the same when the message comes again:
    newid() is made from it, differently for each rule.
    """
    made: list[Copy] = []
    failures: list[RuleFailure] = []
    unchanged = False
    for rule in rules:
        outcome = rule.filter.evaluate(properties, _seed(seed, b"f", rule) if rule.filter.makes_ids else b"")
        if outcome.verdict is Verdict.ERROR:
            failures.append(RuleFailure(rule.name, f"The filter of rule {rule.name!r} failed: {outcome.error}."))
        elif outcome.verdict is Verdict.NO_MATCH:
            continue
        elif rule.action is None:
            unchanged = True
        else:
            result = rule.action.apply(properties, _seed(seed, b"a", rule))
            if isinstance(result, Failure):
                failures.append(RuleFailure(rule.name, f"The action of rule {rule.name!r} failed: {result.error}."))
            else:
                changed = Properties(result.system, {**result.user, RULE_NAME: rule.name})
                made.append(Copy(changed, rule.name))
    if unchanged:
        made.insert(0, Copy(properties))
    return Routed(made, failures)


def _seed(seed: bytes, use: bytes, rule: Rule) -> bytes:
    return struct.pack(">Ic", len(seed), use) + seed + rule.name.encode("utf-8", "surrogatepass")
