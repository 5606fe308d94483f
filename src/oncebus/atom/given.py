"""What somebody asks an entity to be: some of its properties, to be made a whole description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from oncebus.atom.authorization import GivenRule, made_rules
from oncebus.atom.properties import CHOSEN_AT_CREATION, TEXTS, Value
from oncebus.entities import Entity, Rule, Subscription

T = TypeVar("T", bound=Entity)


@dataclass(frozen=True, slots=True)
class Given:
    """Values by field, and rules, where they were named."""

    values: Mapping[str, Value]
    authorization_rules: tuple[GivenRule, ...] | None = field(default=None, repr=False)
    default_rule: Rule | None = None

    def created(self, base: T, now: int) -> T:
        """A new description: `base`, which has the defaults, where nothing is given."""
        return self._applied(base, now)

    def updated(self, old: T, now: int) -> T:
        """A description instead of an old one, which counts for what is not given.

        A text is taken away by not naming it: clients of the Atom feed have no other way to say so.
        """
        gone: dict[str, Any] = {name: None for name in TEXTS if hasattr(old, name)}
        return self._applied(replace(old, **gone), now)

    def replaced(self, old: T, fields_known: frozenset[str], now: int) -> T:
        """A description instead of an old one: of the fields that could be given, those that are not have defaults.

        What is chosen at creation stays, and so do fields that could not be given.
        """
        defaults: dict[str, Any] = {
            each.name: each.default
            for each in fields(old)
            if each.name in fields_known and each.name not in CHOSEN_AT_CREATION
        }
        return self._applied(replace(old, **defaults), now)

    def _applied(self, base: T, now: int) -> T:
        values: dict[str, Any] = dict(self.values)
        if self.authorization_rules is not None and not isinstance(base, Subscription):
            values["authorization_rules"] = made_rules(self.authorization_rules, base.authorization_rules, now)
        return replace(base, **values)
