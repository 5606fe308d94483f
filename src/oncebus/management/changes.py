"""Management requests as changes of the catalogue: functions for `Broker.change`.

Each function looks up what it needs in the catalogue that it is given. Anything looked up earlier may have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from oncebus.entities import Catalogue, Entity, NotFound, Rule
from oncebus.management.given import Given
from oncebus.management.rules import with_old_values

Change = Callable[[Catalogue, int], Catalogue]
"""Takes a catalogue and the time, and returns the next catalogue."""

Permit = Callable[[Entity | None, Entity], None]
"""Raises unless the caller may replace the first entity, which is None for a new one, by the second."""

Check = Callable[[Entity], None]
"""Raises unless the entity is in the state that the caller expects."""


def create(blank: Entity, given: Given, permit: Permit) -> Change:
    """Return the change that creates an entity. `blank` gives its kind and name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        new = given.created(blank, now)
        permit(None, new)
        return catalogue.created(new, now, None if given.default_rule is None else [given.default_rule])

    return how


def update(blank: Entity, given: Given, permit: Permit, check: Check) -> Change:
    """Return the change that updates an entity as the Atom feed does.

    A property that is not given keeps its value, except a text, which is removed.
    """

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        old = catalogue.get(blank.path, type(blank))
        check(old)
        new = given.updated(old, now)
        permit(old, new)
        return catalogue.updated(new, now)

    return how


def put(blank: Entity, given: Given, permit: Permit) -> Change:
    """Return the change that creates or updates an entity as the Resource Manager does.

    A property that is not given gets its default.
    """
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
    """Return the change that creates a rule, or updates the one with its name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        try:
            old = catalogue.rule(topic, subscription, rule.name)
        except NotFound:
            return catalogue.create_rule(topic, subscription, rule, now)
        return catalogue.update_rule(topic, subscription, with_old_values(rule, old))

    return how
