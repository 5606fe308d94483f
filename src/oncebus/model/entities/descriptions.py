"""The contents of a namespace: queues, topics, subscriptions and their rules, with the defaults of the service.

Descriptions are plain values. The catalogue sets `id`, the times and a subscription's rules. It ignores these fields in
descriptions that a caller passes to create or update an entity.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities.filter_values import Parameters
from oncebus.model.entities.names import DEFAULT_RULE, key_of_path, path_of_address, subscription_path
from oncebus.model.entities.timespans import NO_LIMIT
from oncebus.values.durations import DAY, MINUTE

DEFAULT_WINDOW = 10 * MINUTE
LONGEST_WINDOW = 7 * DAY
"""The longest window of the service. An operator may allow longer ones: see docs/reference/extensions.md."""
DEFAULT_LOCK_DURATION = MINUTE
DEFAULT_MAX_DELIVERY_COUNT = 10
DEFAULT_MAX_SIZE_IN_MEGABYTES = 1024

FORWARDING = ("forward_to", "forward_dead_lettered_messages_to")
"""The fields of a description that name another entity."""

CHOSEN_AT_CREATION = ("requires_duplicate_detection", "requires_session", "enable_partitioning", "detection_key")
"""The fields that cannot be changed after an entity is created."""

NO_ID = 0
"""The id of a description that is not in a catalogue. Real ids start at 1."""


class Tier(enum.StrEnum):
    """The pricing tier of a namespace, which decides which features it has."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class EntityStatus(enum.StrEnum):
    """Whether an entity accepts and delivers messages."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


@dataclass(frozen=True, slots=True)
class Namespace:
    """The properties of the namespace itself.

    `longest_window` is a setting of the running broker. It is not stored with the catalogue.
    """

    name: str = "oncebus"
    tier: Tier = Tier.STANDARD
    longest_window: int = LONGEST_WINDOW
    tags: tuple[tuple[str, str], ...] = ()
    """Names with texts, as tools of Azure attach them. They have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What queues, topics and subscriptions share."""

    name: str
    id: int = NO_ID
    default_message_time_to_live: int = NO_LIMIT
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    auto_delete_on_idle: int = NO_LIMIT
    created_at: int = 0
    updated_at: int = 0

    @property
    def path(self) -> str:
        """Return the path that addresses the entity."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class _TakesSends(_Described):
    """What queues and topics share. `max_message_size_in_kilobytes` is None for the default of the tier.

    `detection_key` is None for the MessageId: see `oncebus.model.entities.detection_keys`.
    """

    max_size_in_megabytes: int = DEFAULT_MAX_SIZE_IN_MEGABYTES
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: int = DEFAULT_WINDOW
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    support_ordering: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_in_kilobytes: int | None = None
    detection_key: str | None = None

    @property
    def window(self) -> int | None:
        """Return the duplicate detection window, or None without detection."""
        return self.duplicate_detection_history_time_window if self.requires_duplicate_detection else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(_TakesSends):
    """A queue. `forward_scheme` is the scheme in which the forward targets were written."""

    lock_duration: int = DEFAULT_LOCK_DURATION
    requires_session: bool = False
    dead_lettering_on_message_expiration: bool = False
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    forward_scheme: str = "sb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(_TakesSends):
    """A topic. Its subscriptions are entities of their own."""

    filtering_messages_before_publishing: bool = False


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A condition in the filter language."""

    expression: str
    parameters: Parameters = ()
    compatibility_level: int = 20
    requires_preprocessing: bool = False


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """A filter that selects all messages."""


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """A filter that selects no messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """A filter that selects messages which equal it in every given field. Newer clients call `label` the subject."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Parameters = ()


CORRELATION_FIELDS = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")
"""The system properties that a correlation filter compares, in the order of the service."""


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Changes to a rule's copy of a message, in the action language."""

    expression: str
    parameters: Parameters = ()
    compatibility_level: int = 20
    requires_preprocessing: bool = False


Filter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter that selects messages for a subscription, and an optional action that changes the copies."""

    name: str = DEFAULT_RULE
    filter: Filter = TrueFilter()
    action: SqlAction | None = None
    created_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(_Described):
    """A subscription to the topic named in `topic`. Its rules are in the order of their creation.

    `forward_scheme` is the scheme in which the forward targets were written.
    """

    topic: str
    topic_id: int = NO_ID
    lock_duration: int = DEFAULT_LOCK_DURATION
    requires_session: bool = False
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = DEFAULT_MAX_DELIVERY_COUNT
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    forward_scheme: str = "sb"
    rules: tuple[Rule, ...] = ()

    @property
    def path(self) -> str:
        """Return the path that addresses the entity."""
        return subscription_path(self.topic, self.name)

    def find_rule(self, name: str) -> Rule | None:
        """Return the rule called `name`, in any letter case; None if there is none."""
        return next((rule for rule in self.rules if key_of_path(rule.name) == key_of_path(name)), None)


Entity = Queue | Topic | Subscription

EntityKind = type[Queue] | type[Topic] | type[Subscription]
"""The class of an entity."""


def blank(kind: EntityKind, name: str, topic: str = "") -> Entity:
    """Return a description with the service's defaults. Only a subscription needs `topic`."""
    return Subscription(topic=topic, name=name) if kind is Subscription else kind(name=name)  # type: ignore[call-arg]


def forward_targets(entity: Entity | None) -> dict[str, str]:
    """Return the paths that an entity forwards to, by field. Empty for a topic and for None."""
    addresses = {field: getattr(entity, field, None) for field in FORWARDING}
    paths = {field: path_of_address(address) for field, address in addresses.items() if address}
    return {field: path for field, path in paths.items() if path}


def rules_by_name(subscription: Subscription) -> tuple[Rule, ...]:
    """Return the rules of a subscription in the order of the service: `$Default`, then the others by name."""
    return tuple(sorted(subscription.rules, key=lambda rule: (rule.name != DEFAULT_RULE, rule.name.lower())))
