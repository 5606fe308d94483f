"""Checks on the set of authorization rules of an entity. `oncebus.access` checks each single rule."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.access import MOST_RULES, AuthorizationRule
from oncebus.entities.errors import BadRequest, QuotaExceeded


def check_authorization_rules(rules: Sequence[AuthorizationRule]) -> None:
    """Raise `QuotaExceeded` for too many rules, or `BadRequest` for two rules with the same name."""
    if len(rules) > MOST_RULES:
        raise QuotaExceeded(f"The entity has {len(rules)} authorization rules, but at most {MOST_RULES} are allowed.")
    names: set[str] = set()
    for rule in rules:
        if rule.name.lower() in names:
            raise BadRequest(f"The authorization rule name '{rule.name}' is used more than once.")
        names.add(rule.name.lower())
