"""Renders resources as JSON. In ids, a tilde replaces each slash in an entity's name, as in Azure."""

from __future__ import annotations

from typing import Any, NamedTuple

from oncebus.model.access import AuthorizationRule, WhichKey, connection_string
from oncebus.model.entities import Catalogue, Entity, Queue, Rule, Subscription, Tier, Topic, iso_timespan
from oncebus.protocols.arm.paths import ResourceName
from oncebus.protocols.http.times import iso8601
from oncebus.protocols.management.reading import RESOURCE_WINDOW
from oncebus.protocols.management.rules import rule_properties
from oncebus.protocols.management.runtime import Runtime, namespace_times
from oncebus.protocols.management.writing import (
    LOCATION,
    authorization_properties,
    entity_properties,
    resource_path,
    resource_type,
)

_TYPE = "Microsoft.ServiceBus/namespaces"

Resource = dict[str, Any]


class Identity(NamedTuple):
    """The id and the type of a resource."""

    id: str
    type: str


def namespace(catalogue: Catalogue, target: ResourceName, endpoint: str, now: int) -> Resource:
    """Return the namespace as JSON. `endpoint` is its URL."""
    created, updated = namespace_times(catalogue, now)
    tier = catalogue.namespace.tier
    sku = {"name": tier.value, "tier": tier.value} | ({"capacity": 1} if tier is Tier.PREMIUM else {})
    name = catalogue.namespace.name
    return {
        **_envelope(f"{target.scope}/namespaces/{name}", name, _TYPE),
        "tags": dict(catalogue.namespace.tags),
        "sku": sku,
        "properties": {
            "provisioningState": "Succeeded",
            "status": "Active",
            "createdAt": iso8601(created),
            "updatedAt": iso8601(updated),
            "serviceBusEndpoint": endpoint,
            "disableLocalAuth": False,
            "zoneRedundant": False,
            "publicNetworkAccess": "Enabled",
        },
    }


def entity(described: Entity, runtime: Runtime, catalogue: Catalogue, target: ResourceName) -> Resource:
    """Return a queue, a topic or a subscription as JSON, with its counts and sizes."""
    owner = identify(described, target)
    properties = entity_properties(described)
    properties |= {
        "createdAt": iso8601(described.created_at),
        "updatedAt": iso8601(described.updated_at),
        "accessedAt": iso8601(runtime.accessed_at),
        "countDetails": runtime.details,
    }
    if isinstance(described, Topic):
        properties |= {"sizeInBytes": runtime.size, "subscriptionCount": runtime.subscriptions}
    else:
        properties["messageCount"] = runtime.messages
    if isinstance(described, Queue):
        properties["sizeInBytes"] = runtime.size
    if isinstance(described, Subscription):
        window = catalogue.topic_of(described).duplicate_detection_history_time_window
        properties[RESOURCE_WINDOW] = iso_timespan(window)
        properties["isClientAffine"] = False
    return {**_envelope(owner.id, described.name, owner.type), "properties": properties}


def rule(described: Rule, subscription: Subscription, target: ResourceName) -> Resource:
    """Return a rule of a subscription as JSON."""
    owner = identify(subscription, target)
    envelope = _envelope(f"{owner.id}/rules/{described.name}", described.name, f"{owner.type}/rules")
    return {**envelope, "properties": rule_properties(described)}


def authorization_rule(given: AuthorizationRule, owner: Identity) -> Resource:
    """Return an authorization rule as JSON, without its keys."""
    id, kind = f"{owner.id}/authorizationRules/{given.name}", f"{owner.type}/authorizationRules"  # noqa: A001
    return {**_envelope(id, given.name, kind), "properties": authorization_properties(given)}


def access_keys(given: AuthorizationRule, host: str, port: int | None, is_plain: bool, entity: str | None) -> Resource:
    """Return the keys of a rule, and the connection strings that contain them. `is_plain` is true without TLS."""
    strings = {which: connection_string(host, port, given, is_plain, entity=entity, which=which) for which in WhichKey}
    return {
        "keyName": given.name,
        "primaryKey": given.primary_key,
        "secondaryKey": given.secondary_key,
        "primaryConnectionString": strings[WhichKey.PRIMARY],
        "secondaryConnectionString": strings[WhichKey.SECONDARY],
    }


def identify(described: Entity | None, target: ResourceName) -> Identity:
    """Return the id and the resource type of an entity, or of the namespace for None."""
    if described is None:
        return Identity(target.namespace_id, _TYPE)
    topic = described.topic if isinstance(described, Subscription) else ""
    path = resource_path(type(described), described.name, topic)
    return Identity(f"{target.namespace_id}/{path}", f"{_TYPE}/{resource_type(type(described))}")


def _envelope(id: str, name: str, kind: str) -> Resource:  # noqa: A002
    return {"id": id, "name": name, "type": kind, "location": LOCATION}
