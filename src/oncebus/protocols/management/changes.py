"""Changes to the catalogue.

Functions turn management requests into changes for `Broker.change`; `apply` applies a plan.

Each function looks up what it needs in the catalogue that it is given. Anything looked up earlier may have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from oncebus.broker.broker import Broker
from oncebus.model.entities import Catalogue, Entity, Rule
from oncebus.protocols.management.authorization_rules import AuthorizationRules
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.planning import Plan
from oncebus.protocols.management.rules import with_old_values
from oncebus.values.errors import OncebusError

Change = Callable[[Catalogue, int], Catalogue]
"""Takes a catalogue and the time, and returns the next catalogue."""

Permit = Callable[[Entity | None, Entity], None]
"""Takes the old entity (None for a new one) and the new one. Raises unless the caller may make this change."""

Check = Callable[[Entity], None]
"""Raises unless the entity is in the state that the caller expects."""


class PlanOutdated(OncebusError):
    """The catalogue has changed since the plan was made. Plan again."""


def create(blank: Entity, given: Given, permit: Permit) -> Change:
    """Return the change that creates an entity. `blank` gives its kind and name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        new = given.apply_to(blank)
        permit(None, new)
        return catalogue.create(new, now, None if given.default_rule is None else [given.default_rule])

    return how


def update(blank: Entity, given: Given, permit: Permit, check: Check) -> Change:
    """Return the change that updates an entity as the Atom feed does.

    A property that is not given keeps its value, except a text, which is removed.
    """

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        old = catalogue.get(blank.path, type(blank))
        check(old)
        new = given.apply_updating(old)
        permit(old, new)
        return catalogue.update(new, now)

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
        new = given.apply_replacing(old)
        permit(old, new)
        return catalogue.update(new, now)

    return how


def put_rule(topic: str, subscription: str, rule: Rule) -> Change:
    """Return the change that creates a rule, or updates the existing rule with the same name."""

    def how(catalogue: Catalogue, now: int) -> Catalogue:
        old = catalogue.subscription(topic, subscription).find_rule(rule.name)
        if old is None:
            return catalogue.create_rule(topic, subscription, rule, now)
        return catalogue.update_rule(topic, subscription, with_old_values(rule, old))

    return how


async def apply(plan: Plan, broker: Broker, rules: AuthorizationRules) -> None:
    """Apply a plan to the namespace.

    Raises `PlanOutdated` if the catalogue has changed since the plan was made. After this or any other error, the
    namespace is unchanged, unless restoring the key file failed.
    """

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        if catalogue is not plan.before:
            raise PlanOutdated
        return plan.after

    changed = plan.changed_authorizations
    # The namespace's rules have a file of their own. They go first, because writing that file may fail.
    await rules.put_all(changed)
    try:
        await broker.change(how)
    except BaseException:
        await rules.take_back(changed, plan.known)
        raise
