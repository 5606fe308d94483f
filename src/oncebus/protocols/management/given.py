"""The properties that a request sets, and the full description that results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from oncebus.model.entities import Entity, Rule, Subscription
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION
from oncebus.protocols.management.authorization import GivenRule, build_rules
from oncebus.protocols.management.properties import RESOURCE_FIELDS, TEXTS, Value

T = TypeVar("T", bound=Entity)


@dataclass(frozen=True, slots=True)
class Given:
    """The values that a request sets, by field, and its authorization rules.

    `authorization_rules` is None if it sets none.
    """

    values: Mapping[str, Value]
    authorization_rules: tuple[GivenRule, ...] | None = field(default=None, repr=False)
    default_rule: Rule | None = None

    def apply_to(self, base: T) -> T:
        """Return the description with the given values. Fields that the request does not set come from `base`."""
        values: dict[str, Any] = dict(self.values)
        if self.authorization_rules is not None and not isinstance(base, Subscription):
            values["authorization_rules"] = build_rules(self.authorization_rules, base.authorization_rules)
        return replace(base, **values)

    def apply_updating(self, old: T) -> T:
        """Return the updated description. Fields that the request does not set keep their values in `old`.

        Except texts: a text that the request does not set is removed, because Atom clients have no other way to remove
        one.
        """
        removed: dict[str, Any] = {name: None for name in TEXTS if hasattr(old, name)}
        return self.apply_to(replace(old, **removed))

    def apply_replacing(self, old: T) -> T:
        """Return the description that replaces `old`. Most fields that the request does not set get their defaults.

        Fields that are fixed at creation, and fields that the Resource Manager does not have, keep their values in
        `old`.
        """
        entity: Entity = old
        known = RESOURCE_FIELDS[type(entity)]
        defaults: dict[str, Any] = {
            each.name: each.default
            for each in fields(old)
            if each.name in known and each.name not in CHOSEN_AT_CREATION
        }
        return self.apply_to(replace(old, **defaults))
