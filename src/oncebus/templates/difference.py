"""What a plan changes, property by property: for people to look at before and after."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oncebus.access import AuthorizationRule
from oncebus.arm import resources
from oncebus.arm.reading import FIELDS
from oncebus.atom.authorization import rights_in_order
from oncebus.atom.properties import PROPERTIES, Kind, written
from oncebus.entities import Catalogue, Queue, Subscription, Topic
from oncebus.entities.names import DEFAULT_RULE, key_of_path
from oncebus.templates.planning import Plan
from oncebus.templates.wanted import WantedAuthorization, WantedEntity, WantedRule

Properties = dict[str, Any]


class Effect(enum.StrEnum):
    """What happens to a resource, in the words of the Resource Manager's what-if."""

    CREATE = "Create"
    MODIFY = "Modify"
    KEEP = "NoChange"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to one resource. `id` is its path below the namespace, empty for the namespace itself."""

    id: str
    effect: Effect
    before: Properties | None
    after: Properties | None


def changes_of(plan: Plan) -> list[Change]:
    """What a plan does to everything that is wanted, in the order in which it was wanted."""
    return list(_changes(plan))


def _changes(plan: Plan) -> Iterator[Change]:
    if plan.wanted.tier is not None:
        tiers = (each.namespace.tier.value for each in (plan.before, plan.after))
        yield _change("", *({"sku": tier} for tier in tiers))
    for entity in plan.wanted.entities:
        yield _change(entity_id(entity), *(_described(each, entity) for each in (plan.before, plan.after)))
    for rule in plan.wanted.rules:
        yield _change(_rule_id(rule, rule.rule.name), *(_rule(each, rule) for each in (plan.before, plan.after)))
    yield from _dropped(plan)
    for authorization in plan.wanted.authorizations:
        yield _change(
            _authorization_id(authorization), *(_authorized(plan, each, authorization) for each in (False, True))
        )


def _change(id_of_it: str, before: Properties | None, after: Properties | None) -> Change:
    if before == after:
        return Change(id_of_it, Effect.KEEP, before, after)
    effect = Effect.CREATE if before is None else Effect.DELETE if after is None else Effect.MODIFY
    return Change(id_of_it, effect, before, after)


def _dropped(plan: Plan) -> Iterator[Change]:
    """The rules that subscriptions begin with, where others have taken their place."""
    for owner in {key_of_path(rule.owner): rule for rule in plan.wanted.rules}.values():
        before = _rule_named(plan.before, owner, DEFAULT_RULE)
        if before is not None and _rule_named(plan.after, owner, DEFAULT_RULE) is None:
            yield _change(_rule_id(owner, DEFAULT_RULE), before, None)


def entity_properties(entity: Queue | Topic | Subscription) -> Properties:
    """The properties of an entity, by the Resource Manager's names."""
    found: Properties = {}
    for each in PROPERTIES[type(entity)].values():
        value = each.value_of(entity)
        if value is not None and (each.field in FIELDS[type(entity)] or each.kind is Kind.TEXT):
            found[each.camel] = (
                value if isinstance(value, int) and each.kind is not Kind.SPAN else written(value, each.kind)
            )
    return found


def authorization_properties(rule: AuthorizationRule) -> Properties:
    """The properties of an authorization rule: no keys."""
    return {"rights": rights_in_order(rule.rights)}


def entity_id(entity: WantedEntity) -> str:
    """The path of an entity below the namespace, as a resource."""
    if entity.kind is Subscription:
        return f"topics/{in_id(entity.topic)}/subscriptions/{entity.name}"
    return f"{'queues' if entity.kind is Queue else 'topics'}/{in_id(entity.name)}"


def in_id(name: str) -> str:
    """The name of an entity within an id: a slash is a tilde."""
    return name.replace("/", "~")


def _rule_id(rule: WantedRule, name: str) -> str:
    return f"topics/{in_id(rule.topic)}/subscriptions/{rule.subscription}/rules/{name}"


def _authorization_id(wanted: WantedAuthorization) -> str:
    owner = "" if wanted.kind is None else f"{'queues' if wanted.kind is Queue else 'topics'}/{in_id(wanted.name)}/"
    return f"{owner}authorizationRules/{wanted.given.name}"


def _described(catalogue: Catalogue, wanted: WantedEntity) -> Properties | None:
    found = catalogue.find(wanted.path)
    return entity_properties(found) if isinstance(found, wanted.kind) else None


def _rule(catalogue: Catalogue, wanted: WantedRule) -> Properties | None:
    return _rule_named(catalogue, wanted, wanted.rule.name)


def _rule_named(catalogue: Catalogue, wanted: WantedRule, name: str) -> Properties | None:
    owner = catalogue.find(wanted.owner)
    if not isinstance(owner, Subscription):
        return None
    found = next((each for each in owner.rules if key_of_path(each.name) == key_of_path(name)), None)
    return None if found is None else resources.rule_properties(found)


def _authorized(plan: Plan, is_after: bool, wanted: WantedAuthorization) -> Properties | None:
    if wanted.kind is None:
        rules = plan.authorizations if is_after else plan.known
    else:
        found = (plan.after if is_after else plan.before).find(wanted.name)
        rules = found.authorization_rules if isinstance(found, Queue | Topic) else ()
    rule = next((each for each in rules if each.name == wanted.given.name), None)
    return None if rule is None else authorization_properties(rule)
