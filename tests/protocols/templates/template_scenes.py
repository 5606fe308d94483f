"""Templates for tests, and helpers that plan them."""

from __future__ import annotations

from typing import Any

from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import Catalogue
from oncebus.protocols.management.difference import Effect, changes_of
from oncebus.protocols.management.planning import Plan
from oncebus.protocols.management.problems import FileRefused
from oncebus.protocols.templates.template import plan_template

NOW = 1_790_000_000_000_000
ROOT = AuthorizationRule("RootManageSharedAccessKey", frozenset({Right.MANAGE}), "one", "two")
TYPE = "Microsoft.ServiceBus/namespaces"


def template(*resources: Any, parameters: Any = None, variables: Any = None) -> dict[str, Any]:
    return {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": parameters or {},
        "variables": variables or {},
        "resources": list(resources),
    }


def resource(kind: str, name: str, /, properties: Any = None, **members: Any) -> dict[str, Any]:
    """Return a resource of the namespace `bus`, with the kind and the name below it."""
    made = {"type": f"{TYPE}/{kind}", "apiVersion": "2024-01-01", "name": f"bus/{name}", **members}
    return made if properties is None else {**made, "properties": properties}


def queue(name: str, /, **properties: Any) -> dict[str, Any]:
    return resource("queues", name, properties)


def topic(name: str, /, **properties: Any) -> dict[str, Any]:
    return resource("topics", name, properties)


def subscription(name: str, /, **properties: Any) -> dict[str, Any]:
    return resource("topics/subscriptions", name, properties)


def rule(name: str, /, **properties: Any) -> dict[str, Any]:
    return resource("topics/subscriptions/rules", name, properties)


def planned(
    content: Any, before: Catalogue | None = None, /, *, now: int = NOW, rules: Any = (ROOT,), **values: Any
) -> Plan:
    given = {name: {"value": value} for name, value in values.items()}
    return plan_template(content, given, before or Catalogue(), now, namespace_rules=rules)


def changes_nothing(plan: Plan) -> bool:
    return plan.after is plan.before and not plan.changed_authorizations


def deployed(content: Any, before: Catalogue | None = None, /, **values: Any) -> Catalogue:
    return planned(content, before, **values).after


def problems(content: Any, before: Catalogue | None = None, /, **values: Any) -> dict[str, str]:
    """Return the problems of a template by their places."""
    try:
        planned(content, before, **values)
    except FileRefused as error:
        assert len({problem.path for problem in error.problems}) == len(error.problems), error.lines
        return {problem.path: problem.text for problem in error.problems}
    raise AssertionError("It was not refused")


def effects(plan: Plan) -> dict[str, str]:
    """Return the effects of a plan by the path below the namespace."""
    signs = {Effect.CREATE: "+", Effect.MODIFY: "~", Effect.KEEP: "=", Effect.DELETE: "-"}
    return {change.id: signs[change.effect] for change in changes_of(plan)}
