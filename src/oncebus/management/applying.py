"""Bringing a plan about, all of it or nothing."""

from __future__ import annotations

from oncebus.broker.broker import Broker
from oncebus.entities import Catalogue
from oncebus.errors import OncebusError
from oncebus.management.authorization_rules import AuthorizationRules
from oncebus.management.planning import Plan


class PlanOutdated(OncebusError):
    """The catalogue is not the one that was planned for: another change came in between. Plan again."""


async def apply(plan: Plan, broker: Broker, rules: AuthorizationRules) -> None:
    """Make the namespace what was planned. Raises `PlanOutdated` where something came in between."""

    def how(catalogue: Catalogue, _: int) -> Catalogue:
        if catalogue is not plan.before:
            raise PlanOutdated
        return plan.after

    changed = plan.changed_authorizations
    # These lie in a file of their own. They go first, because that file may be out of reach.
    await rules.put_all(changed)
    try:
        await broker.change(how)
    except BaseException:
        await rules.take_back(changed, plan.known)
        raise
