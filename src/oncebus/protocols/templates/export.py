"""Exports a namespace as a template, to deploy it elsewhere. The template contains no keys.

The namespace's name is a parameter. Everything else is literal; defaults are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities import (
    Catalogue,
    CorrelationFilter,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.descriptions import CHOSEN_AT_CREATION, blank
from oncebus.model.entities.limits import PARTITIONS, fill_in
from oncebus.model.entities.names import DEFAULT_RULE
from oncebus.protocols.management.properties import PROPERTIES
from oncebus.protocols.management.rules import rule_properties
from oncebus.protocols.management.writing import (
    API_VERSION,
    LOCATION,
    Properties,
    authorization_properties,
    entity_properties,
    in_id,
)

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
PARAMETER = "namespaceName"

_TYPE = "Microsoft.ServiceBus/namespaces"
_NAMESPACE = f"parameters('{PARAMETER}')"

Resource = dict[str, Any]


class Export(NamedTuple):
    """A template, and warnings about parts of the namespace that a template cannot express."""

    template: dict[str, Any]
    warnings: list[str]


def export(catalogue: Catalogue, namespace_rules: Iterable[AuthorizationRule]) -> Export:
    """Return the template of a namespace.

    Deploying it to an empty namespace makes an equal one, except for the parts in `warnings`.
    """
    warnings: list[str] = []
    return Export(
        {
            "$schema": SCHEMA,
            "contentVersion": "1.0.0.0",
            "parameters": {PARAMETER: {"type": "string", "defaultValue": catalogue.namespace.name}},
            "resources": list(_resources(catalogue, namespace_rules, warnings)),
        },
        warnings,
    )


def _resources(
    catalogue: Catalogue, namespace_rules: Iterable[AuthorizationRule], warnings: list[str]
) -> Iterator[Resource]:
    yield _namespace(catalogue)
    for rule in namespace_rules:
        yield _resource("authorizationRules", [rule.name], authorization_properties(rule), _id([]))
    entities: list[Queue | Topic] = [*catalogue.queues, *catalogue.topics]
    for entity in entities:
        if "~" in entity.name:
            warnings.append(
                f"'{entity.name}': a tilde in a template means a slash, so deploying the template changes the name."
            )
        word = "queues" if isinstance(entity, Queue) else "topics"
        place = [(word, in_id(entity.name))]
        targets = _list_targets(entity, catalogue) if isinstance(entity, Queue) else []
        properties = _written_properties(entity, catalogue, warnings)
        yield _resource(word, [in_id(entity.name)], properties, _id([]), *targets)
        for rule in entity.authorization_rules:
            names = [in_id(entity.name), rule.name]
            yield _resource(f"{word}/authorizationRules", names, authorization_properties(rule), _id(place))
        if isinstance(entity, Topic):
            for subscription in catalogue.subscriptions_of(entity):
                yield from _subscription(subscription, catalogue, warnings)


def _namespace(catalogue: Catalogue) -> Resource:
    tier = catalogue.namespace.tier
    sku = {"name": tier.value, "tier": tier.value} | ({"capacity": 1} if tier is Tier.PREMIUM else {})
    return {
        "type": _TYPE,
        "apiVersion": API_VERSION,
        "name": f"[{_NAMESPACE}]",
        "location": LOCATION,
        "sku": sku,
        "properties": {},
    }


def _subscription(subscription: Subscription, catalogue: Catalogue, warnings: list[str]) -> Iterator[Resource]:
    topic = in_id(subscription.topic)
    names, targets = [topic, subscription.name], _list_targets(subscription, catalogue)
    properties = _written_properties(subscription, catalogue, warnings)
    yield _resource("topics/subscriptions", names, properties, _id([("topics", topic)]), *targets)
    owner = _id([("topics", topic), ("subscriptions", subscription.name)])
    if not subscription.rules:
        warnings.append(f"'{subscription.path}' has no rules. When deployed, it gets a rule that matches all messages.")
    if [(each.name, each.filter, each.action) for each in subscription.rules] == [(DEFAULT_RULE, TrueFilter(), None)]:
        return
    for rule in subscription.rules:
        if _has_parameters(rule):
            warnings.append(
                f"'{subscription.path}': the parameters and typed values of rule '{rule.name}' are left out."
            )
        properties = rule_properties(rule)
        yield _resource("topics/subscriptions/rules", [*names, rule.name], properties, owner)


def _has_parameters(rule: Rule) -> bool:
    if rule.action is not None and rule.action.parameters:
        return True
    if isinstance(rule.filter, CorrelationFilter):
        return any(not isinstance(value, str | int | float) for _, value in rule.filter.properties)
    return isinstance(rule.filter, SqlFilter) and bool(rule.filter.parameters)


def _written_properties(entity: Queue | Topic | Subscription, catalogue: Catalogue, warnings: list[str]) -> Properties:
    """Return the properties that differ from their defaults, and those that are fixed at creation."""
    if not isinstance(entity, Topic):
        entity = _without_lost_targets(entity, catalogue, warnings)
    default = entity_properties(_default(entity, catalogue))
    always = {each.camel for each in PROPERTIES[type(entity)].values() if each.field in CHOSEN_AT_CREATION}
    found = {
        name: value for name, value in entity_properties(entity).items() if name in always or default.get(name) != value
    }
    warnings += [
        f"'{entity.path}' has the property '{each.camel}', an extension that Azure does not have."
        for each in PROPERTIES[type(entity)].values()
        if each.is_extension and each.camel in found
    ]
    size = found.get("maxSizeInMegabytes")
    if not isinstance(entity, Subscription) and entity.enable_partitioning and isinstance(size, int):
        # A description shows the size of all partitions, but a request gives the size of one.
        found["maxSizeInMegabytes"] = size // PARTITIONS
    return found


def _without_lost_targets(
    entity: Queue | Subscription, catalogue: Catalogue, warnings: list[str]
) -> Queue | Subscription:
    """Return the entity without forwarding to deleted entities, because deployment would reject it."""

    def keep_target(target: str | None) -> str | None:
        if target is None or catalogue.forward_target(target) is not None:
            return target
        warnings.append(f"'{entity.path}' forwards to '{target}', which does not exist. The forwarding is left out.")
        return None

    return replace(
        entity,
        forward_to=keep_target(entity.forward_to),
        forward_dead_lettered_messages_to=keep_target(entity.forward_dead_lettered_messages_to),
    )


def _default(entity: Queue | Topic | Subscription, catalogue: Catalogue) -> Queue | Topic | Subscription:
    kept: dict[str, Any] = {}
    if not isinstance(entity, Subscription):
        kept["enable_partitioning"] = entity.enable_partitioning
    return fill_in(replace(blank(type(entity), entity.name), **kept), catalogue.namespace)


def _list_targets(entity: Queue | Subscription, catalogue: Catalogue) -> list[str]:
    """Return the ids of the entities that an entity forwards to, for `dependsOn`.

    Leaves out targets that forward back to it.
    """
    return [
        _id([("queues" if isinstance(target, Queue) else "topics", in_id(target.name))])
        for target in _targets(entity, catalogue)
        if not _leads_to(target, entity, catalogue)
    ]


def _targets(entity: Queue | Subscription, catalogue: Catalogue) -> list[Queue | Topic]:
    addresses = (entity.forward_to, entity.forward_dead_lettered_messages_to)
    found = (catalogue.forward_target(address) for address in addresses)
    return [target for target in found if target is not None]


def _leads_to(start: Queue | Topic, end: Queue | Subscription, catalogue: Catalogue) -> bool:
    """Return whether `start` forwards to `end`, possibly through other queues.

    The search does not continue past a topic.
    """
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        entity = waiting.pop()
        if entity.id == end.id:
            return True
        if isinstance(entity, Queue) and entity.id not in seen:
            seen.add(entity.id)
            waiting += _targets(entity, catalogue)
    return False


def _resource(kind: str, names: Sequence[str], properties: Properties, *depends: str) -> Resource:
    return {
        "type": f"{_TYPE}/{kind}",
        "apiVersion": API_VERSION,
        "name": f"[concat({_NAMESPACE}, {_quote('/' + '/'.join(names))})]",
        "properties": _escape(properties),
        "dependsOn": list(dict.fromkeys(depends)),
    }


def _escape(value: Any) -> Any:
    """Return the value with those strings escaped that a template would treat as expressions."""
    if isinstance(value, dict):
        return {_escape(name): _escape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escape(each) for each in value]
    return f"[{value}" if isinstance(value, str) and value.startswith("[") and value.endswith("]") else value


def _id(pairs: Sequence[tuple[str, str]]) -> str:
    kinds = "/".join([_TYPE, *(kind for kind, _ in pairs)])
    names = ", ".join([_NAMESPACE, *(_quote(name) for _, name in pairs)])
    return f"[resourceId('{kinds}', {names})]"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
