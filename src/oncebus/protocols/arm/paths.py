"""Paths of the Resource Manager:

    /subscriptions/{s}[/resourceGroups/{g}]/providers/Microsoft.ServiceBus/namespaces                all namespaces
    /subscriptions/{s}/providers/Microsoft.ServiceBus/checkNameAvailability
    /subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.ServiceBus/namespaces/{namespace}      = N
    N/queues[/{queue}]      N/topics[/{topic}[/subscriptions[/{subscription}[/rules[/{rule}]]]]]
    …/authorizationRules[/{name}[/listKeys or /regenerateKeys]]                         of N, a queue or a topic

Fixed words may have any case. Slashes in a name should be escaped (%2F); plain ones work too. Starlette compiles the
patterns; they match the path before it is decoded, so that an escaped slash stays within a name.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import compile_path

from oncebus.model.entities import Entity, Queue, Subscription, Topic, subscription_path
from oncebus.model.entities.descriptions import EntityKind, blank
from oncebus.protocols.arm.errors import ArmRefused
from oncebus.protocols.http.paths import segments_of
from oncebus.protocols.management.authorization_rules import Owner
from oncebus.protocols.management.writing import GROUP
from oncebus.values.errors import shown

_SERVICE_BUS = r"providers/microsoft\.servicebus"
_PROVIDER = re.compile(
    rf"(?:/subscriptions/[^/]+(?:/resourcegroups/[^/]+)?)?/{_SERVICE_BUS}(?:/.*)?".encode(), re.IGNORECASE
)


class Shape(enum.Enum):
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

    shape: Shape
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
    def owner(self) -> Owner | None:
        """Return the queue or topic that owns the authorization rules; None for the namespace."""
        if self.kind is Queue:
            return Owner(Queue, self.name)
        return Owner(Topic, self.name) if self.kind is Topic else None


def is_resource(raw_path: bytes) -> bool:
    """Return whether a path is one of the Resource Manager's."""
    return _PROVIDER.fullmatch(raw_path) is not None


def resource_of(raw_path: bytes) -> ResourceName:
    """Parse the path of a request. Raises `ArmRefused`."""
    text = raw_path.removesuffix(b"/").decode("latin-1")
    for each in _PATHS:
        match = each.pattern.fullmatch(text)
        if match is not None:
            found = {name: each.convertors[name].convert(value) for name, value in match.groupdict().items()}
            return ResourceName(each.shape, each.kind, **found)
    path = "/" + "/".join(segments_of(raw_path))
    raise ArmRefused(404, "ResourceNotFound", f"There is no resource at the path {shown(path)}.")


class _Segment(Convertor[str]):
    """Matches one segment of a path, and decodes it once."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return "/".join(segments_of(value.encode("latin-1")))

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


class _Queue(_Segment):
    """Matches a name that may contain plain slashes.

    It ends before the fixed word that begins the next part of the path.
    """

    regex = "[^/]+(?:/(?!authorizationrules(?:/|$))[^/]+)*"


class _Topic(_Segment):
    regex = "[^/]+(?:/(?!(?:authorizationrules|subscriptions)(?:/|$))[^/]+)*"


class _Group(_Segment):
    """Matches the path down to the provider, with a resource group."""

    regex = rf"subscriptions/[^/]+/resourcegroups/[^/]+/{_SERVICE_BUS}"

    def convert(self, value: str) -> str:
        return "/" + super().convert(value)


class _Provider(_Segment):
    """Matches the path down to the provider, without a resource group.

    Adds the default group, because resource ids need one.
    """

    regex = rf"(?:subscriptions/[^/]+/(?:resourcegroups/[^/]+/)?)?{_SERVICE_BUS}"

    def convert(self, value: str) -> str:
        segments = super().convert(value).split("/")
        is_grouped = "resourcegroups" in (each.lower() for each in segments)
        return "/" + "/".join([*segments[:-2], *([] if is_grouped else ["resourceGroups", GROUP]), *segments[-2:]])


for _word, _convertor in {
    "arm_segment": _Segment,
    "arm_queue": _Queue,
    "arm_topic": _Topic,
    "arm_group": _Group,
    "arm_provider": _Provider,
}.items():
    register_url_convertor(_word, _convertor())


@dataclass(frozen=True, slots=True)
class _Path:
    shape: Shape
    kind: EntityKind | None
    pattern: re.Pattern[str]
    convertors: dict[str, Convertor[Any]]


def _path(shape: Shape, kind: EntityKind | None, path: str) -> _Path:
    pattern, _, convertors = compile_path(path)
    return _Path(shape, kind, re.compile(pattern.pattern, re.IGNORECASE), convertors)


def _authorization(kind: EntityKind | None, owner: str) -> list[_Path]:
    rule = f"{owner}/authorizationRules/{{rule:arm_segment}}"
    return [
        _path(Shape.AUTHORIZATION_RULES, kind, f"{owner}/authorizationRules"),
        _path(Shape.AUTHORIZATION_RULE, kind, rule),
        _path(Shape.LIST_KEYS, kind, f"{rule}/listKeys"),
        _path(Shape.REGENERATE_KEYS, kind, f"{rule}/regenerateKeys"),
    ]


_NAMESPACE = "/{scope:arm_group}/namespaces/{namespace:arm_segment}"
_QUEUE = f"{_NAMESPACE}/queues/{{name:arm_queue}}"
_TOPIC = f"{_NAMESPACE}/topics/{{name:arm_topic}}"
_SUBSCRIPTION = f"{_TOPIC}/subscriptions/{{subscription:arm_segment}}"

_PATHS = (
    _path(Shape.NAMESPACES, None, "/{scope:arm_provider}/namespaces"),
    _path(Shape.CHECK_NAME, None, "/{scope:arm_provider}/checkNameAvailability"),
    _path(Shape.NAMESPACE, None, _NAMESPACE),
    *_authorization(None, _NAMESPACE),
    _path(Shape.ENTITIES, Queue, f"{_NAMESPACE}/queues"),
    _path(Shape.ENTITY, Queue, _QUEUE),
    *_authorization(Queue, _QUEUE),
    _path(Shape.ENTITIES, Topic, f"{_NAMESPACE}/topics"),
    _path(Shape.ENTITY, Topic, _TOPIC),
    *_authorization(Topic, _TOPIC),
    _path(Shape.ENTITIES, Subscription, f"{_TOPIC}/subscriptions"),
    _path(Shape.ENTITY, Subscription, _SUBSCRIPTION),
    _path(Shape.RULES, Subscription, f"{_SUBSCRIPTION}/rules"),
    _path(Shape.RULE, Subscription, f"{_SUBSCRIPTION}/rules/{{rule:arm_segment}}"),
)
