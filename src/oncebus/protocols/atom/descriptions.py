"""Reads and writes a queue, a topic or a subscription as XML, and writes the namespace.

Elements may come in any order; they are written in the service's order. An element with `i:nil` counts as missing.
Read-only elements (counts, times) are ignored. The error for an unknown element names it.
"""

from __future__ import annotations

from oncebus.model.entities import Catalogue, Queue, Subscription, Tier, Topic
from oncebus.model.entities.descriptions import FORWARDING
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.authorization import read_rules, write_rules
from oncebus.protocols.atom.document import INSTANCE, Element
from oncebus.protocols.atom.rules import check_known, read_rule
from oncebus.protocols.http.times import iso8601
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.properties import PROPERTIES, Property, read_value, write_value
from oncebus.protocols.management.runtime import Runtime, namespace_times

EXTENSIONS = "urn:oncebus:extensions"
"""The XML namespace of properties that Azure does not have. They are written only if they are set."""
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
NAMESPACES = {"xmlns": SERVICE_BUS, "xmlns:i": INSTANCE}
_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_RULES = "AuthorizationRules"
_DEFAULT_RULE = "DefaultRuleDescription"
MESSAGE_SIZE = "MaxMessageSizeInKilobytes"
FILTER_COUNTS = ("SqlFilterCount", "CorrelationFilterCount")

KINDS: dict[str, type[Queue | Topic | Subscription]] = {
    "QueueDescription": Queue,
    "TopicDescription": Topic,
    "SubscriptionDescription": Subscription,
}
NAMES = {kind: name for name, kind in KINDS.items()}

# The service's order of elements.
_ELEMENTS: dict[type[Queue | Topic | Subscription], str] = {
    Queue: """
        LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount
        EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status
        ForwardTo UserMetadata CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle
        EnablePartitioning ForwardDeadLetteredMessagesTo EntityAvailabilityStatus EnableExpress
        MaxMessageSizeInKilobytes
    """,
    Topic: """
        DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection
        DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes
        FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules Status UserMetadata CreatedAt
        UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
        CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
        EnableSubscriptionPartitioning EnableExpress MaxMessageSizeInKilobytes
    """,
    Subscription: """
        LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MessageCount MaxDeliveryCount
        EnableBatchedOperations Status ForwardTo UserMetadata CreatedAt UpdatedAt AccessedAt CountDetails
        ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus
    """,
}
_ORDER = {kind: names.split() for kind, names in _ELEMENTS.items()}


def read_description(node: Element) -> Given:
    """Return the values that an element of one of the `KINDS` sets. Raises `BadRequest`."""
    kind = KINDS[node.name]
    extended = {each.name for each in node if each.namespace == EXTENSIONS}
    check_known(node, (*_ORDER[kind], *(extended & _extensions(kind).keys())))
    members = node.members()
    values = {
        each.field: read_value(members[name].text, name, each.type)
        for name, each in PROPERTIES[kind].items()
        if name in members
    }
    targets = [
        members[name].text for name, each in PROPERTIES[kind].items() if each.field in FORWARDING and name in members
    ]
    if targets:
        is_https = any(target.strip().lower().startswith("https://") for target in targets)
        values["forward_scheme"] = "https" if is_https else "sb"
    rules = read_rules(members[_RULES]) if _RULES in members else None
    first = read_rule(members[_DEFAULT_RULE]) if _DEFAULT_RULE in members else None
    return Given(values, rules, first)


def write_description(
    entity: Queue | Topic | Subscription,
    runtime: Runtime | None = None,
    *,
    host: str = "",
    left_out: frozenset[str] = frozenset(),
) -> str:
    """Return the element that describes an entity, with counts and sizes if `runtime` is given.

    With `host`, forward targets are written as addresses on that host, as the service does.
    """
    kind = type(entity)
    elements = {name: _property(entity, name, host) for name in PROPERTIES[kind]}
    elements |= _read_only(entity, runtime)
    if not isinstance(entity, Subscription):
        elements[_RULES] = write_rules(entity.authorization_rules)
    content = "".join(elements.get(name, "") for name in _ORDER[kind] if name not in left_out)
    content += "".join(
        markup.tag(name, markup.text(str(value)), {"xmlns": EXTENSIONS})
        for name, each in _extensions(kind).items()
        if (value := each.value_of(entity)) is not None
    )
    return markup.tag(NAMES[kind], content, NAMESPACES)


def write_namespace(catalogue: Catalogue, now: int) -> tuple[str, int, int]:
    """Return the XML of a namespace, the time of its creation, and the time of its last change."""
    namespace = catalogue.namespace
    created, updated = namespace_times(catalogue, now)
    content = [markup.field("CreatedTime", iso8601(created)), markup.field("MessagingSKU", namespace.tier.value)]
    if namespace.tier is Tier.PREMIUM:
        # Clients require this element in the Premium tier. The broker runs on one machine.
        content.append(markup.field("MessagingUnits", "1"))
    content += [
        markup.field("ModifiedTime", iso8601(updated)),
        markup.field("Name", namespace.name),
        markup.field("NamespaceType", "Messaging"),
    ]
    return markup.tag("NamespaceInfo", "".join(content), NAMESPACES), created, updated


def _extensions(kind: type[Queue | Topic | Subscription]) -> dict[str, Property]:
    return {name: each for name, each in PROPERTIES[kind].items() if each.is_extension}


def _property(entity: Queue | Topic | Subscription, name: str, host: str) -> str:
    each = PROPERTIES[type(entity)][name]
    value = each.value_of(entity)
    if value is None:
        return ""
    if host and each.field in FORWARDING and not isinstance(entity, Topic):
        value = f"{entity.forward_scheme}://{host}/{value}"
    return markup.field(name, write_value(value, each.type))


def _read_only(entity: Queue | Topic | Subscription, runtime: Runtime | None) -> dict[str, str]:
    """Return the read-only elements of an entity."""
    values = {
        "CreatedAt": iso8601(entity.created_at),
        "UpdatedAt": iso8601(entity.updated_at),
        "EntityAvailabilityStatus": "Available",
        "EnableSubscriptionPartitioning": "false",
    }
    if runtime is not None:
        values |= {
            "AccessedAt": iso8601(runtime.accessed_at),
            "SizeInBytes": str(runtime.size),
            "MessageCount": str(runtime.messages),
            "SubscriptionCount": str(runtime.subscriptions),
            **dict(zip(FILTER_COUNTS, map(str, (runtime.sql_filters, runtime.correlation_filters)), strict=True)),
        }
    elements = {name: markup.field(name, value) for name, value in values.items()}
    if runtime is not None:
        details = {f"d2p1:{name[0].upper()}{name[1:]}": str(count) for name, count in runtime.details.items()}
        content = "".join(markup.field(name, count) for name, count in details.items())
        elements["CountDetails"] = markup.tag("CountDetails", content, {"xmlns:d2p1": _COUNTS})
    return elements
