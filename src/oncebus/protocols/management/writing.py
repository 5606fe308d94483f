"""Entities and authorization rules in JSON, by the Resource Manager's names, and the paths of resources."""

from __future__ import annotations

from typing import Any

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities import Entity, Queue, Subscription, Topic
from oncebus.model.entities.descriptions import EntityKind
from oncebus.protocols.management.authorization import rights_in_order
from oncebus.protocols.management.properties import PROPERTIES, RESOURCE_FIELDS, ValueType, write_value

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
"""The Azure subscription of the namespace, if the client names none. It stands for "this broker"."""
TENANT = "00000000-0000-0000-0000-000000000000"
"""The tenant of the subscription."""
GROUP = "local"
"""The resource group of the namespace, if the client names none."""
LOCATION = "local"
API_VERSION = "2024-01-01"
"""The version of the Resource Manager API that templates are exported for, and that the command line uses."""

Properties = dict[str, Any]

_TYPES: dict[EntityKind, str] = {Queue: "queues", Topic: "topics", Subscription: "topics/subscriptions"}


def entity_properties(entity: Entity) -> Properties:
    """Return the properties of an entity that have a value."""
    found: Properties = {}
    for each in PROPERTIES[type(entity)].values():
        value = each.value_of(entity)
        if value is not None and (each.field in RESOURCE_FIELDS[type(entity)] or each.type is ValueType.TEXT):
            is_plain = isinstance(value, int) and each.type is not ValueType.SPAN
            found[each.camel] = value if is_plain else write_value(value, each.type)
    return found


def authorization_properties(rule: AuthorizationRule) -> Properties:
    """Return the properties of an authorization rule, without its keys."""
    return {"rights": rights_in_order(rule.rights)}


def resource_type(kind: EntityKind) -> str:
    """Return the resource type of a kind of entity, below the namespace's type, such as `topics/subscriptions`."""
    return _TYPES[kind]


def resource_path(kind: EntityKind, name: str, topic: str = "") -> str:
    """Return the path of an entity below the namespace, such as `topics/prices/subscriptions/high`."""
    if kind is Subscription:
        return f"{resource_path(Topic, topic)}/subscriptions/{name}"
    return f"{_TYPES[kind]}/{in_id(name)}"


def in_id(name: str) -> str:
    """Return the name of an entity as ids write it, with a tilde for each slash."""
    return name.replace("/", "~")
