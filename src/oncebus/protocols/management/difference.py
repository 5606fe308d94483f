"""The changes that a plan makes, property by property, for people to review."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from oncebus.model.entities import Catalogue, Queue, Subscription, Topic
from oncebus.model.entities.names import DEFAULT_RULE, key_of_path
from oncebus.protocols.management.planning import Plan
from oncebus.protocols.management.rules import rule_properties
from oncebus.protocols.management.wanted import WantedAuthorization, WantedEntity, WantedRule
from oncebus.protocols.management.writing import Properties, authorization_properties, entity_properties, resource_path


class Effect(enum.StrEnum):
    """What happens to a resource, in the terms of the Resource Manager's what-if."""

    CREATE = "Create"
    MODIFY = "Modify"
    KEEP = "NoChange"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """The change of one resource. `id` is its path below the namespace, empty for the namespace itself."""

    id: str
    effect: Effect
    before: Properties | None
    after: Properties | None


def changes_of(plan: Plan) -> Iterator[ResourceChange]:
    """Yield the change of each resource that the plan wants, in the order of the file.

    Default rules that the plan deletes because the file gives other rules come after the rules.
    """
    catalogues = (plan.before, plan.after)
    if plan.wanted.tier is not None:
        yield _change("", *({"sku": each.namespace.tier.value} for each in catalogues))
    for entity in plan.wanted.entities:
        path = resource_path(entity.kind, entity.name, entity.topic)
        yield _change(path, *(_describe_entity(each, entity) for each in catalogues))
    owners: dict[str, WantedRule] = {}
    for rule in plan.wanted.rules:
        owners.setdefault(key_of_path(rule.owner), rule)
        name = rule.rule.name
        yield _change(_rule_id(rule, name), *(_describe_rule(each, rule.owner, name) for each in catalogues))
    for rule in owners.values():
        before, after = (_describe_rule(each, rule.owner, DEFAULT_RULE) for each in catalogues)
        if before is not None and after is None:
            yield _change(_rule_id(rule, DEFAULT_RULE), before, None)
    for wanted in plan.wanted.authorizations:
        yield _change(
            _authorization_id(wanted), *(_describe_authorization(plan, each, wanted) for each in (False, True))
        )


def _change(id_: str, before: Properties | None, after: Properties | None) -> ResourceChange:
    if before == after:
        return ResourceChange(id_, Effect.KEEP, before, after)
    effect = Effect.CREATE if before is None else Effect.DELETE if after is None else Effect.MODIFY
    return ResourceChange(id_, effect, before, after)


def _rule_id(rule: WantedRule, name: str) -> str:
    return f"{resource_path(Subscription, rule.subscription, rule.topic)}/rules/{name}"


def _authorization_id(wanted: WantedAuthorization) -> str:
    owner = "" if wanted.kind is None else f"{resource_path(wanted.kind, wanted.name)}/"
    return f"{owner}authorizationRules/{wanted.given.name}"


def _describe_entity(catalogue: Catalogue, wanted: WantedEntity) -> Properties | None:
    found = catalogue.find(wanted.path)
    return entity_properties(found) if isinstance(found, wanted.kind) else None


def _describe_rule(catalogue: Catalogue, owner: str, name: str) -> Properties | None:
    subscription = catalogue.find(owner)
    found = subscription.find_rule(name) if isinstance(subscription, Subscription) else None
    return None if found is None else rule_properties(found)


def _describe_authorization(plan: Plan, is_after: bool, wanted: WantedAuthorization) -> Properties | None:
    if wanted.kind is None:
        rules = plan.authorizations if is_after else plan.known
    else:
        found = (plan.after if is_after else plan.before).find(wanted.name)
        rules = found.authorization_rules if isinstance(found, Queue | Topic) else ()
    rule = next((each for each in rules if each.name == wanted.given.name), None)
    return None if rule is None else authorization_properties(rule)
