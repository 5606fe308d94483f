"""The limits on descriptions of entities, and on changes to existing entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from oncebus.model.access import MOST_RULES, AuthorizationRule
from oncebus.model.entities.descriptions import (
    CHOSEN_AT_CREATION,
    DEFAULT_WINDOW,
    FORWARDING,
    CorrelationFilter,
    Entity,
    Namespace,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    forward_targets,
)
from oncebus.model.entities.detection_keys import MESSAGE_ID, check_detection_key
from oncebus.model.entities.errors import BadRequest, OutOfRange, QuotaExceeded
from oncebus.model.entities.names import (
    check_path,
    check_rule_name,
    check_subscription_name,
    property_name,
)
from oncebus.model.entities.timespans import NO_LIMIT, dotnet_timespan
from oncebus.model.filters.parser import LONGEST_TEXT
from oncebus.values.durations import DAY, MINUTE, SECOND
from oncebus.values.sizes import utf16_length

SHORTEST_WINDOW = 20 * SECOND
SHORTEST_LOCK = SECOND
LONGEST_LOCK = 5 * MINUTE
SHORTEST_TIME_TO_LIVE = SECOND
LONGEST_TIME_TO_LIVE_BASIC = 14 * DAY
SHORTEST_AUTO_DELETE = 5 * MINUTE
MOST_DELIVERIES = 2000
LONGEST_USER_METADATA = 1024
PARTITIONS = 16

E = TypeVar("E", bound=Entity)

_SIZES = (1024, 2048, 3072, 4096, 5120)
_PREMIUM_SIZES = (*_SIZES, 10240, 20480, 40960, 81920)
_MESSAGE_KILOBYTES = 256
_PREMIUM_MESSAGE_KILOBYTES = (1024, 102400)


@dataclass(frozen=True, slots=True)
class Occasion:
    """The context of a check: the namespace and the operation, such as creating. Error texts name both.

    `old` is the entity before the operation; None for a new one.
    """

    namespace: Namespace
    verb: str = "creating"
    old: Entity | None = None

    @property
    def tier(self) -> Tier:
        """Return the namespace's tier."""
        return self.namespace.tier


def fill_in(entity: E, namespace: Namespace) -> E:
    """Return the entity with the values that the service fills in: sizes, time to live, paths of forward targets.

    A detection key that is the default becomes None.
    """
    filled: dict[str, Any] = {}
    if isinstance(entity, Queue):
        is_endless = entity.default_message_time_to_live >= NO_LIMIT
        if namespace.tier is Tier.BASIC and is_endless:
            filled["default_message_time_to_live"] = LONGEST_TIME_TO_LIVE_BASIC
    if isinstance(entity, Queue | Topic):
        # Clients request the size of one partition but see the total size. A client that updates an entity sends back
        # the total, so a size that no single partition can have is already the total.
        size, is_premium = entity.max_size_in_megabytes, namespace.tier is Tier.PREMIUM
        if entity.enable_partitioning and not is_premium and size in _SIZES:
            filled["max_size_in_megabytes"] = size * PARTITIONS
        if entity.detection_key == MESSAGE_ID:
            filled["detection_key"] = None
        if entity.max_message_size_in_kilobytes is None:
            filled["max_message_size_in_kilobytes"] = _message_size_of(namespace.tier)
    if isinstance(entity, Queue | Subscription):
        targets = forward_targets(entity)
        filled |= {field: targets.get(field) for field in FORWARDING}
    return replace(entity, **filled)


def check_entity(entity: Entity, occasion: Occasion) -> None:
    """Raise `BadRequest` or `QuotaExceeded` if an entity from `fill_in` breaks a limit.

    Checks that need other entities, such as a forward target, are not made here.
    """
    match entity:
        case Queue():
            check_path(entity.name)
            if occasion.tier is Tier.BASIC:
                _check_basic(entity, occasion)
            _check_queue_or_topic(entity, occasion)
            _check_delivery(entity)
            _check_time_to_live(entity, occasion)
        case Topic():
            if occasion.tier is Tier.BASIC:
                name = occasion.namespace.name
                raise BadRequest(f"Cannot operate on type Topic because the namespace '{name}' is using 'Basic' tier.")
            check_path(entity.name)
            _check_queue_or_topic(entity, occasion)
            _check_time_to_live(entity, occasion)
        case Subscription():
            check_subscription_name(entity.name)
            _check_delivery(entity)
            _check_time_to_live(entity, occasion)
            _check_common(entity)


def check_change(old: Entity, new: Entity) -> None:
    """Raise `BadRequest` if a property that is fixed at creation has changed. Both entities have the same kind."""
    for field in CHOSEN_AT_CREATION:
        if getattr(old, field, None) == getattr(new, field, None):
            continue
        if field == "enable_partitioning":
            raise BadRequest(f"Partitioning cannot be changed for {_kind(old)}.", field=field)
        text = f"The value for the {property_name(field)} property of an existing {_kind(old)} cannot be changed."
        raise BadRequest(text, field=field)


def check_rule(rule: Rule) -> None:
    """Raise `BadRequest` if a rule has a bad name or filter. The expressions are not parsed here."""
    check_rule_name(rule.name)
    expressions = {"filter": rule.filter.expression} if isinstance(rule.filter, SqlFilter) else {}
    if rule.action is not None:
        expressions["action"] = rule.action.expression
    argument = "sqlExpression"
    for field, expression in expressions.items():
        if not expression.strip():
            raise BadRequest(f"The argument '{argument}' is null or white space.", field=field, parameter=argument)
        if utf16_length(expression) > LONGEST_TEXT:
            text = f"The argument '{argument}' cannot exceed {LONGEST_TEXT} characters."
            raise OutOfRange(text, field=field, parameter=argument)
    if isinstance(rule.filter, CorrelationFilter):
        names = [name for name, _ in rule.filter.properties]
        for name in names:
            if names.count(name) > 1:
                text = f"The property '{name}' is in the correlation filter more than once."
                raise BadRequest(text, field="filter")


def check_authorization_rules(rules: Sequence[AuthorizationRule]) -> None:
    """Raise `QuotaExceeded` for too many rules, or `BadRequest` for two rules with the same name.

    `oncebus.model.access` checks each single rule.
    """
    if len(rules) > MOST_RULES:
        raise QuotaExceeded(f"The entity has {len(rules)} authorization rules, but at most {MOST_RULES} are allowed.")
    names: set[str] = set()
    for rule in rules:
        if rule.name.lower() in names:
            raise BadRequest(f"The authorization rule name '{rule.name}' is used more than once.")
        names.add(rule.name.lower())


def check_forward_target(field: str, address: str, target: Entity | None) -> None:
    """Raise `BadRequest` unless messages can be forwarded to a target. `target` is the entity at the address.

    Cycles are allowed, even to itself: the limit on hops stops a message that goes round.
    """
    if target is None or isinstance(target, Subscription):
        raise BadRequest(
            f"The auto forwarding destination entity '{address}' does not exist.",
            40400,
            field=field,
            parameter=property_name(field),
        )


def largest_message(entity: Queue | Topic) -> int:
    """Return the maximum size of a message to an entity, in bytes."""
    return (entity.max_message_size_in_kilobytes or _MESSAGE_KILOBYTES) * 1024


def has_message_size_of(tier: Tier, entity: Queue | Topic) -> bool:
    """Return whether an entity has the default message size of a tier."""
    return entity.max_message_size_in_kilobytes == _message_size_of(tier)


def _message_size_of(tier: Tier) -> int:
    return _PREMIUM_MESSAGE_KILOBYTES[0] if tier is Tier.PREMIUM else _MESSAGE_KILOBYTES


def _check_basic(queue: Queue, occasion: Occasion) -> None:
    beyond_basic = {
        "requires_duplicate_detection": queue.requires_duplicate_detection,
        "requires_session": queue.requires_session,
        "duplicate_detection_history_time_window": queue.duplicate_detection_history_time_window != DEFAULT_WINDOW,
        "auto_delete_on_idle": queue.auto_delete_on_idle < NO_LIMIT,
        "forward_to": queue.forward_to is not None,
        "forward_dead_lettered_messages_to": queue.forward_dead_lettered_messages_to is not None,
        "enable_express": queue.enable_express,
    }
    for field, is_set in beyond_basic.items():
        if is_set:
            supported = (Tier.STANDARD,) if field == "enable_express" else (Tier.STANDARD, Tier.PREMIUM)
            raise _not_in_tier(field, queue, occasion, *supported)


def _check_queue_or_topic(entity: Queue | Topic, occasion: Occasion) -> None:
    tier = occasion.tier
    if tier is Tier.PREMIUM and entity.enable_partitioning:
        raise _not_in_tier("enable_partitioning", entity, occasion, Tier.BASIC, Tier.STANDARD)
    if tier is Tier.PREMIUM and entity.enable_express:
        raise _not_in_tier("enable_express", entity, occasion, Tier.STANDARD)
    if entity.enable_express and entity.requires_duplicate_detection:
        # DelayedPersistence is the name that the service uses here for EnableExpress.
        text = "Both DelayedPersistence and RequiresDuplicateDetection property cannot be enabled together."
        raise BadRequest(text, field="requires_duplicate_detection")
    if entity.is_anonymous_accessible:
        name = "is_anonymous_accessible"
        raise BadRequest("Anonymous access is not supported.", field=name, parameter=property_name(name))
    if not isinstance(occasion.old, Queue | Topic) or occasion.old.detection_key != entity.detection_key:
        # Otherwise only detection may have changed, and that is refused in the service's own words.
        check_detection_key(entity.detection_key, entity.requires_duplicate_detection)
    _check_window(entity, occasion)
    _check_size(entity, tier)
    _check_message_size(entity, occasion)
    check_authorization_rules(entity.authorization_rules)
    _check_common(entity)


def _check_window(entity: Queue | Topic, occasion: Occasion) -> None:
    window = entity.duplicate_detection_history_time_window
    old = occasion.old
    if isinstance(old, Queue | Topic) and window == old.duplicate_detection_history_time_window:
        # The operator may have lowered the limit since the entity got its window.
        return
    _check_span("duplicate_detection_history_time_window", window, SHORTEST_WINDOW, occasion.namespace.longest_window)


def _check_size(entity: Queue | Topic, tier: Tier) -> None:
    allowed = _PREMIUM_SIZES if tier is Tier.PREMIUM else _SIZES
    size = entity.max_size_in_megabytes
    factor = PARTITIONS if entity.enable_partitioning else 1
    if size not in [factor * each for each in allowed]:
        raise OutOfRange(
            f"The specified value {size} is invalid. The property 'MaxSizeInMegabytes', must be one of the following"
            f" values: {';'.join(map(str, allowed))}.",
            field="max_size_in_megabytes",
        )


def _check_message_size(entity: Queue | Topic, occasion: Occasion) -> None:
    size = entity.max_message_size_in_kilobytes
    if occasion.tier is not Tier.PREMIUM:
        if size != _MESSAGE_KILOBYTES:
            raise _not_in_tier("max_message_size_in_kilobytes", entity, occasion, Tier.PREMIUM)
        return
    least, most = _PREMIUM_MESSAGE_KILOBYTES
    if size is None or not least <= size <= most:
        raise _out_of_tier_range("max_message_size_in_kilobytes", str(least), str(most), occasion)


def _check_delivery(entity: Queue | Subscription) -> None:
    if entity.lock_duration > LONGEST_LOCK:
        text = "The supplied lock time exceeds the allowed maximum of '5' minutes."
        raise OutOfRange(text, field="lock_duration")
    _check_span("lock_duration", entity.lock_duration, SHORTEST_LOCK, LONGEST_LOCK)
    if not 1 <= entity.max_delivery_count <= MOST_DELIVERIES:
        raise _out_of_range("max_delivery_count", "1", str(MOST_DELIVERIES), str(entity.max_delivery_count))


def _check_time_to_live(entity: Entity, occasion: Occasion) -> None:
    field, value = "default_message_time_to_live", entity.default_message_time_to_live
    if occasion.tier is not Tier.BASIC:
        _check_span(field, value, SHORTEST_TIME_TO_LIVE, NO_LIMIT)
    elif not SHORTEST_TIME_TO_LIVE <= value <= LONGEST_TIME_TO_LIVE_BASIC:
        least, most = dotnet_timespan(SHORTEST_TIME_TO_LIVE), dotnet_timespan(LONGEST_TIME_TO_LIVE_BASIC)
        raise _out_of_tier_range(field, least, most, occasion)


def _check_common(entity: Entity) -> None:
    _check_span("auto_delete_on_idle", entity.auto_delete_on_idle, SHORTEST_AUTO_DELETE, NO_LIMIT)
    if entity.user_metadata is not None and len(entity.user_metadata) > LONGEST_USER_METADATA:
        raise OutOfRange(
            f"The argument 'UserMetadata' cannot exceed {LONGEST_USER_METADATA} characters.",
            field="user_metadata",
            parameter="UserMetadata",
        )


def _check_span(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise _out_of_range(field, dotnet_timespan(least), dotnet_timespan(most), dotnet_timespan(value))


def _out_of_range(field: str, least: str, most: str, actual: str) -> OutOfRange:
    text = f"The value supplied must be between {least} and {most}."
    return OutOfRange(text, field=field, parameter=property_name(field), actual=actual)


def _out_of_tier_range(field: str, least: str, most: str, occasion: Occasion) -> OutOfRange:
    name = property_name(field)
    return OutOfRange(
        f"The property value for '{name}' must be between {least} and {most} when the namespace"
        f" '{occasion.namespace.name}' is using '{occasion.tier}' tier.",
        field=field,
        parameter=name,
    )


def _not_in_tier(field: str, entity: Entity, occasion: Occasion, *supported: Tier) -> BadRequest:
    name = property_name(field)
    tiers = " or ".join(f"'{tier}'" for tier in supported)
    return BadRequest(
        f"The property '{name}' cannot be set when {occasion.verb} a {_kind(entity)} because the namespace"
        f" '{occasion.namespace.name}' is using the '{occasion.tier}' tier. This operation is only supported in {tiers}"
        " tier.",
        field=field,
        parameter=name,
    )


def _kind(entity: Entity) -> str:
    return type(entity).__name__
