"""What a management request does to the catalogue, as functions for `Broker.change`.

Everything that depends on the catalogue is looked up inside: another change may come between a look and a change.
"""

from __future__ import annotations

from collections.abc import Callable

from oncebus.entities import Catalogue, Entity, NotFound, Rule
from oncebus.management.given import Given
from oncebus.management.rules import with_old_values

Change = Callable[[Catalogue, int], Catalogue]
"""A catalogue and the time in; the next catalogue out."""

Permit = Callable[[Entity | None, Entity], None]
"""Raises unless the caller may make the second entity of the first, which is None for a new one."""

Check = Callable[[Entity], None]
"""Raises unless an entity is as the caller expects it."""


def create(blank: Entity, given: Given, permit: Permit) -> Change:
    """Create an entity: `blank` says its kind and name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        new = given.created(blank, now)
        permit(None, new)
        return catalogue.created(new, now, None if given.default_rule is None else [given.default_rule])

    return how


def update(blank: Entity, given: Given, permit: Permit, check: Check) -> Change:
    """Change an entity as the Atom feed does: a property that is not given stays, but a text is removed."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        old = catalogue.get(blank.path, type(blank))
        check(old)
        new = given.updated(old, now)
        permit(old, new)
        return catalogue.updated(new, now)

    return how


def put(blank: Entity, given: Given, permit: Permit) -> Change:
    """Create or change an entity as the Resource Manager does: a property that is not given gets its default."""
    creation = create(blank, given, permit)

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        old = catalogue.find(blank.path)
        if not isinstance(old, type(blank)):
            return creation(catalogue, now)
        new = given.replaced(old, now)
        permit(old, new)
        return catalogue.updated(new, now)

    return how


def put_rule(topic: str, subscription: str, rule: Rule) -> Change:
    """Create a rule, or change the one of its name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        try:
            old = catalogue.rule(topic, subscription, rule.name)
        except NotFound:
            return catalogue.create_rule(topic, subscription, rule, now)
        return catalogue.update_rule(topic, subscription, with_old_values(rule, old))

    return how
