"""What somebody asks an entity to be: some of its properties, to be made a whole description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from oncebus.entities import Entity, Rule, Subscription
from oncebus.entities.descriptions import CHOSEN_AT_CREATION
from oncebus.management.authorization import GivenRule, made_rules
from oncebus.management.properties import RESOURCE_FIELDS, TEXTS, Value

T = TypeVar("T", bound=Entity)


@dataclass(frozen=True, slots=True)
class Given:
    """Values by field, and rules, where they were named."""

    values: Mapping[str, Value]
    authorization_rules: tuple[GivenRule, ...] | None = field(default=None, repr=False)
    default_rule: Rule | None = None

    def created(self, base: T, now: int) -> T:
        """Return a new description: `base`, which has the defaults, where nothing is given."""
        return self._applied(base, now)

    def updated(self, old: T, now: int) -> T:
        """Return a description instead of an old one, which counts for what is not given.

        A text that is not named is removed: clients of the Atom feed have no other way to say so.
        """
        gone: dict[str, Any] = {name: None for name in TEXTS if hasattr(old, name)}
        return self._applied(replace(old, **gone), now)

    def replaced(self, old: T, now: int) -> T:
        """Return a description instead of an old one: of the Resource Manager's fields, those not given have defaults.

        What is chosen at creation stays, and so do fields that the Resource Manager does not have.
        """
        entity: Entity = old
        known = RESOURCE_FIELDS[type(entity)]
        defaults: dict[str, Any] = {
            each.name: each.default
            for each in fields(old)
            if each.name in known and each.name not in CHOSEN_AT_CREATION
        }
        return self._applied(replace(old, **defaults), now)

    def _applied(self, base: T, now: int) -> T:
        values: dict[str, Any] = dict(self.values)
        if self.authorization_rules is not None and not isinstance(base, Subscription):
            values["authorization_rules"] = made_rules(self.authorization_rules, base.authorization_rules, now)
        return replace(base, **values)
