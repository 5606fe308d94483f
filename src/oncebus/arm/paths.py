"""What a Resource Manager's path names:

    /subscriptions/{s}[/resourceGroups/{g}]/providers/Microsoft.ServiceBus/namespaces                all namespaces
    /subscriptions/{s}/providers/Microsoft.ServiceBus/checkNameAvailability
    /subscriptions/{s}/resourceGroups/{g}/providers/Microsoft.ServiceBus/namespaces/{namespace}      = N
    N/queues[/{queue}]      N/topics[/{topic}[/subscriptions[/{subscription}[/rules[/{rule}]]]]]
    …/authorizationRules[/{name}[/listKeys or /regenerateKeys]]                         of N, a queue or a topic

Fixed words may have any case. A name's slashes are best escaped (%2F); plain ones are understood too.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from oncebus.arm.errors import ArmRefused
from oncebus.errors import shown
from oncebus.http.paths import segments_of

GROUP = "local"
"""The resource group that the namespace is in, where the client names none."""

_PROVIDER = re.compile(
    rb"(?:/subscriptions/[^/]+(?:/resourcegroups/[^/]+)?)?/providers/microsoft\.servicebus(?:/.*)?", re.IGNORECASE
)


class Shape(enum.Enum):
    """What sort of resource is addressed."""

    NAMESPACES = "namespaces"
    NAMESPACE = "namespace"
    NAME = "checkNameAvailability"
    QUEUES = "queues"
    QUEUE = "queue"
    TOPICS = "topics"
    TOPIC = "topic"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"
    AUTHORIZATION_RULES = "authorizationRules"
    AUTHORIZATION_RULE = "authorizationRule"
    LIST_KEYS = "listKeys"
    REGENERATE_KEYS = "regenerateKeys"


class Target(NamedTuple):
    """What a request is about. `scope` is the path down to the provider, as the client wrote it.

    Of authorization rules, `owner` says whether they are the namespace's, a queue's or a topic's.
    """

    shape: Shape
    scope: str
    namespace: str = ""
    name: str = ""
    subscription: str = ""
    rule: str = ""
    owner: Shape = Shape.NAMESPACE

    @property
    def namespace_id(self) -> str:
        """The id of the namespace."""
        return f"{self.scope}/namespaces/{self.namespace}"


def is_resource(raw_path: bytes) -> bool:
    """Whether a path is one of the Resource Manager's."""
    return _PROVIDER.fullmatch(raw_path) is not None


def target_of(raw_path: bytes) -> Target:
    """What a path names, or a refusal."""
    segments = segments_of(raw_path)
    words = [segment.lower() for segment in segments]
    at = words.index("providers")
    is_grouped = "resourcegroups" in words[:at]
    # A list over all groups leads to resources that are in one all the same.
    group = [] if is_grouped else ["resourceGroups", GROUP]
    scope = "/" + "/".join([*segments[:at], *group, *segments[at : at + 2]])
    rest = segments[at + 2 :]
    below = words[at + 2 :]
    if below == ["checknameavailability"]:
        return Target(Shape.NAME, scope)
    if below == ["namespaces"]:
        return Target(Shape.NAMESPACES, scope)
    if len(below) < 2 or below[0] != "namespaces" or not is_grouped:
        raise _nothing(segments)
    found = _in_namespace(Target(Shape.NAMESPACE, scope, rest[1]), rest[2:])
    if found is None:
        raise _nothing(segments)
    return found


def _in_namespace(target: Target, rest: list[str]) -> Target | None:
    if not rest:
        return target
    word = rest[0].lower()
    if word == "authorizationrules":
        return _authorization(target, rest[1:])
    if word not in ("queues", "topics"):
        return None
    many, one = (Shape.QUEUES, Shape.QUEUE) if word == "queues" else (Shape.TOPICS, Shape.TOPIC)
    if len(rest) == 1:
        return target._replace(shape=many)
    words = [segment.lower() for segment in rest]
    for at in range(2, len(rest)):
        entity = target._replace(shape=one, name="/".join(rest[1:at]), owner=one)
        if words[at] == "authorizationrules":
            return _authorization(entity, rest[at + 1 :])
        if words[at] == "subscriptions" and one is Shape.TOPIC:
            return _subscription(entity, rest[at + 1 :])
    return target._replace(shape=one, name="/".join(rest[1:]))


def _subscription(target: Target, rest: list[str]) -> Target | None:
    if not rest:
        return target._replace(shape=Shape.SUBSCRIPTIONS)
    target = target._replace(shape=Shape.SUBSCRIPTION, subscription=rest[0])
    if len(rest) == 1:
        return target
    if rest[1].lower() != "rules" or len(rest) > 3:
        return None
    if len(rest) == 2:
        return target._replace(shape=Shape.RULES)
    return target._replace(shape=Shape.RULE, rule=rest[2])


def _authorization(target: Target, rest: list[str]) -> Target | None:
    if not rest:
        return target._replace(shape=Shape.AUTHORIZATION_RULES)
    target = target._replace(shape=Shape.AUTHORIZATION_RULE, rule=rest[0])
    if len(rest) == 1:
        return target
    shapes = {"listkeys": Shape.LIST_KEYS, "regeneratekeys": Shape.REGENERATE_KEYS}
    if len(rest) > 2 or rest[1].lower() not in shapes:
        return None
    return target._replace(shape=shapes[rest[1].lower()])


def _nothing(segments: list[str]) -> ArmRefused:
    return ArmRefused(404, "ResourceNotFound", f"There is no resource at the path {shown('/' + '/'.join(segments))}.")
