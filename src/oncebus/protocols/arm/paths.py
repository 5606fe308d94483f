"""Paths of the Resource Manager:

    /subscriptions/{s}[/resourceGroups/{g}]/providers/Microsoft.ServiceBus/namespaces                all namespaces
    /subscriptions/{s}/providers/Microsoft.ServiceBus/checkNameAvailability
    /subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.ServiceBus/namespaces/{namespace}      = N
    N/queues[/{queue}]      N/topics[/{topic}[/subscriptions[/{subscription}[/rules[/{rule}]]]]]
    …/authorizationRules[/{name}[/listKeys or /regenerateKeys]]                         of N, a queue or a topic

Fixed words may have any case. Slashes in a name should be escaped (%2F); plain ones work too. The patterns match the
path before it is decoded, so that an escaped slash stays within a name.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from oncebus.model.entities import Entity, Queue, Subscription, Topic, subscription_path
from oncebus.model.entities.descriptions import EntityKind, blank
from oncebus.protocols.arm.errors import ArmRefused
from oncebus.protocols.http.paths import segments_of
from oncebus.protocols.management.authorization_rules import RulesOwner
from oncebus.protocols.management.writing import GROUP
from oncebus.values.errors import clip

LONGEST_SHOWN = 1000
"""Characters of a path in an error text. Ids are long, and what is wrong is at their end."""


class ResourceKind(enum.Enum):
    """The kind of resource that a path names."""

    NAMESPACES = enum.auto()
    NAMESPACE = enum.auto()
    CHECK_NAME = enum.auto()
    ENTITIES = enum.auto()
    ENTITY = enum.auto()
    RULES = enum.auto()
    RULE = enum.auto()
    AUTHORIZATION_RULES = enum.auto()
    AUTHORIZATION_RULE = enum.auto()
    LIST_KEYS = enum.auto()
    REGENERATE_KEYS = enum.auto()


class ResourceName(NamedTuple):
    """The parts of a path. `scope` is the path down to and including the provider, as the client wrote it.

    `kind` is the kind of the entity that the path names, or that owns the resource; None for the namespace. `name` is
    the name of the queue or topic, even if the path names a subscription of that topic.
    """

    resource: ResourceKind
    kind: EntityKind | None
    scope: str
    namespace: str = ""
    name: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def namespace_id(self) -> str:
        """Return the id of the namespace."""
        return f"{self.scope}/namespaces/{self.namespace}"

    @property
    def path(self) -> str:
        """Return the path of the entity, which a request's token must cover; empty for the namespace."""
        return subscription_path(self.name, self.subscription) if self.subscription else self.name

    @property
    def blank(self) -> Entity:
        """Return a description of this kind and name with the service's defaults."""
        assert self.kind is not None
        is_subscription = self.kind is Subscription
        return blank(self.kind, self.subscription if is_subscription else self.name, self.name)

    @property
    def owner(self) -> RulesOwner | None:
        """Return the queue or topic that owns the authorization rules; None for the namespace."""
        if self.kind is Queue:
            return RulesOwner(Queue, self.name)
        return RulesOwner(Topic, self.name) if self.kind is Topic else None


def is_resource(raw_path: bytes) -> bool:
    """Return whether a path is one of the Resource Manager's."""
    return _ANY.fullmatch(raw_path.decode("latin-1")) is not None


def is_below(raw_path: bytes) -> bool:
    """Return whether a path begins as those of subscriptions, tenants and providers do."""
    return raw_path[1:].partition(b"/")[0].lower() in (b"subscriptions", b"tenants", b"providers")


def resource_of(raw_path: bytes) -> ResourceName:
    """Parse the path of a request. Raises `ArmRefused`."""
    text = raw_path.removesuffix(b"/").decode("latin-1")
    for resource, kind, pattern in _PATHS:
        match = pattern.fullmatch(text)
        if match is not None:
            parts = {name: "/".join(segments_of(part.encode("latin-1"))) for name, part in match.groupdict().items()}
            return ResourceName(resource, kind, **parts | {"scope": _with_group(parts["scope"])})
    path = "/" + "/".join(segments_of(raw_path))
    raise ArmRefused(404, "ResourceNotFound", f"There is no resource at the path {clip(path, LONGEST_SHOWN)}.")


def _with_group(scope: str) -> str:
    """Return the path down to the provider. Ids of resources need a group: if it has none, it gets the default one."""
    segments = scope.split("/")
    is_grouped = "resourcegroups" in (each.lower() for each in segments)
    return "/" + "/".join([*segments[:-2], *([] if is_grouped else ["resourceGroups", GROUP]), *segments[-2:]])


_PROVIDER = r"/providers/microsoft\.servicebus"
_SCOPE = rf"(?P<scope>(?:/subscriptions/[^/]+(?:/resourcegroups/[^/]+)?)?{_PROVIDER})"
_NAMESPACE = rf"(?P<scope>/subscriptions/[^/]+/resourcegroups/[^/]+{_PROVIDER})/namespaces/(?P<namespace>[^/]+)"
# A name may contain plain slashes. It ends before the fixed word that begins the next part of the path.
_QUEUE = rf"{_NAMESPACE}/queues/(?P<name>[^/]+(?:/(?!authorizationrules(?:/|$))[^/]+)*)"
_TOPIC = rf"{_NAMESPACE}/topics/(?P<name>[^/]+(?:/(?!(?:authorizationrules|subscriptions)(?:/|$))[^/]+)*)"
_SUBSCRIPTION = rf"{_TOPIC}/subscriptions/(?P<subscription>[^/]+)"
_RULE = "(?P<rule>[^/]+)"

_ANY = re.compile(f"{_SCOPE}(?:/.*)?", re.IGNORECASE)

_OF_AN_OWNER = {
    ResourceKind.AUTHORIZATION_RULES: "/authorizationrules",
    ResourceKind.AUTHORIZATION_RULE: f"/authorizationrules/{_RULE}",
    ResourceKind.LIST_KEYS: f"/authorizationrules/{_RULE}/listkeys",
    ResourceKind.REGENERATE_KEYS: f"/authorizationrules/{_RULE}/regeneratekeys",
}
_OWNERS: tuple[tuple[EntityKind | None, str], ...] = ((None, _NAMESPACE), (Queue, _QUEUE), (Topic, _TOPIC))
_TABLE: tuple[tuple[ResourceKind, EntityKind | None, str], ...] = (
    (ResourceKind.NAMESPACES, None, f"{_SCOPE}/namespaces"),
    (ResourceKind.CHECK_NAME, None, f"{_SCOPE}/checknameavailability"),
    (ResourceKind.NAMESPACE, None, _NAMESPACE),
    (ResourceKind.ENTITIES, Queue, f"{_NAMESPACE}/queues"),
    (ResourceKind.ENTITY, Queue, _QUEUE),
    (ResourceKind.ENTITIES, Topic, f"{_NAMESPACE}/topics"),
    (ResourceKind.ENTITY, Topic, _TOPIC),
    (ResourceKind.ENTITIES, Subscription, f"{_TOPIC}/subscriptions"),
    (ResourceKind.ENTITY, Subscription, _SUBSCRIPTION),
    (ResourceKind.RULES, Subscription, f"{_SUBSCRIPTION}/rules"),
    (ResourceKind.RULE, Subscription, f"{_SUBSCRIPTION}/rules/{_RULE}"),
    *((resource, kind, owner + below) for kind, owner in _OWNERS for resource, below in _OF_AN_OWNER.items()),
)
_PATHS = tuple((resource, kind, re.compile(pattern, re.IGNORECASE)) for resource, kind, pattern in _TABLE)
