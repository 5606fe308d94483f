"""Applies a plan: all of it or nothing."""

from __future__ import annotations

from oncebus.broker.broker import Broker
from oncebus.entities import Catalogue
from oncebus.errors import OncebusError
from oncebus.management.authorization_rules import AuthorizationRules
from oncebus.management.planning import Plan


class PlanOutdated(OncebusError):
    """The catalogue has changed since the plan was made. Plan again."""


async def apply(plan: Plan, broker: Broker, rules: AuthorizationRules) -> None:
    """Apply a plan to the namespace.

    Raises `PlanOutdated` if the catalogue has changed since. Then, and after any other error, the namespace is as it
    was, unless restoring the key file failed.
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
