"""Shared access rules of an entity: who holds one of its keys may do what the rule's rights say."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from oncebus.entities.errors import BadRequest, OutOfRange, QuotaExceeded

MOST_RULES = 12
LONGEST_NAME = 256
LONGEST_KEY = 256


class Right(enum.StrEnum):
    """What a key allows. Manage allows the others too."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A SharedAccessAuthorizationRule. Its keys are secrets and show up in no repr."""

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created_at: int | None = None
    modified_at: int | None = None

    def allows(self, right: Right) -> bool:
        """Whether a key of this rule may be used for that."""
        return right in self.rights


def check_authorization_rules(rules: Sequence[AuthorizationRule]) -> None:
    """Refuse rules that an entity cannot have."""
    if len(rules) > MOST_RULES:
        raise QuotaExceeded(f"The entity has {len(rules)} authorization rules, but at most {MOST_RULES} are allowed.")
    names: set[str] = set()
    for rule in rules:
        _check_rule(rule)
        if rule.name.lower() in names:
            raise BadRequest(f"The authorization rule name '{rule.name}' is used more than once.")
        names.add(rule.name.lower())


def _check_rule(rule: AuthorizationRule) -> None:
    if not rule.name:
        raise BadRequest("An authorization rule must have a name.\nParameter name: KeyName")
    if len(rule.name) > LONGEST_NAME:
        raise OutOfRange(
            f"The authorization rule name '{rule.name}' exceeds the '{LONGEST_NAME}' character limit."
            "\nParameter name: KeyName"
        )
    if not rule.rights:
        raise BadRequest(f"The authorization rule '{rule.name}' must have at least one right.\nParameter name: Rights")
    if Right.MANAGE in rule.rights and len(rule.rights) != len(Right):
        raise BadRequest("Manage permission should also include Send and Listen.\nParameter name: Rights")
    for parameter, key in (("PrimaryKey", rule.primary_key), ("SecondaryKey", rule.secondary_key)):
        if not key:
            raise BadRequest(f"The authorization rule '{rule.name}' must have a key.\nParameter name: {parameter}")
        if len(key) > LONGEST_KEY:
            raise OutOfRange(
                f"The key of the authorization rule '{rule.name}' exceeds the '{LONGEST_KEY}' character limit."
                f"\nParameter name: {parameter}"
            )
