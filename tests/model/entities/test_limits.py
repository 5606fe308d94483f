from __future__ import annotations

from dataclasses import replace

import pytest

from oncebus.model import access
from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import (
    NO_LIMIT,
    BadRequest,
    CorrelationFilter,
    Entity,
    EntityError,
    Namespace,
    OutOfRange,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
)
from oncebus.model.entities.limits import (
    Occasion,
    check_authorization_rules,
    check_change,
    check_entity,
    check_forward_target,
    check_rule,
    fill_in,
)
from oncebus.values.durations import DAY, MINUTE, SECOND
from oncebus.values.errors import ErrorKind

BASIC, STANDARD, PREMIUM = (Namespace("ns", tier) for tier in Tier)
QUEUE = Queue(name="orders")
TOPIC = Topic(name="news")
SUBSCRIPTION = Subscription(topic="news", name="all")
RULE = AuthorizationRule("rule", frozenset({Right.MANAGE}), "a", "b")


def check(entity: Entity, namespace: Namespace = STANDARD, verb: str = "creating") -> None:
    check_entity(fill_in(entity, namespace), Occasion(namespace, verb))


def refusal(entity: Entity, namespace: Namespace = STANDARD, verb: str = "creating") -> str:
    with pytest.raises(BadRequest) as raised:
        check(entity, namespace, verb)
    assert raised.value.kind in (ErrorKind.BAD_REQUEST, ErrorKind.OUT_OF_RANGE)
    assert raised.value.sub_code == 40000
    return str(raised.value)


def between(least: str, most: str, name: str, actual: str) -> str:
    return f"The value supplied must be between {least} and {most}.\nParameter name: {name}\nActual value was {actual}."


@pytest.mark.parametrize("namespace", [BASIC, STANDARD, PREMIUM])
def test_defaults_are_valid_in_every_tier(namespace: Namespace) -> None:
    check(QUEUE, namespace)


def test_the_defaults_of_an_empty_description() -> None:
    queue = fill_in(QUEUE, STANDARD)
    assert queue.duplicate_detection_history_time_window == 10 * MINUTE
    assert queue.lock_duration == MINUTE
    assert queue.max_delivery_count == 10
    assert queue.max_size_in_megabytes == 1024
    assert queue.default_message_time_to_live == queue.auto_delete_on_idle == NO_LIMIT
    assert queue.max_message_size_in_kilobytes == 256
    assert not queue.requires_duplicate_detection
    assert queue.window is None
    assert replace(queue, requires_duplicate_detection=True).window == 10 * MINUTE
    assert fill_in(TOPIC, PREMIUM).max_message_size_in_kilobytes == 1024
    assert fill_in(QUEUE, BASIC).default_message_time_to_live == 14 * DAY
    assert SUBSCRIPTION.dead_lettering_on_filter_evaluation_exceptions


@pytest.mark.parametrize(
    "entity",
    [
        replace(QUEUE, duplicate_detection_history_time_window=20 * SECOND),
        replace(QUEUE, duplicate_detection_history_time_window=7 * DAY),
        replace(QUEUE, lock_duration=SECOND),
        replace(QUEUE, lock_duration=5 * MINUTE),
        replace(QUEUE, max_delivery_count=1),
        replace(QUEUE, max_delivery_count=2000),
        replace(QUEUE, default_message_time_to_live=SECOND),
        replace(QUEUE, auto_delete_on_idle=5 * MINUTE),
        replace(QUEUE, max_size_in_megabytes=5120),
        replace(QUEUE, max_message_size_in_kilobytes=256),
        replace(QUEUE, user_metadata="x" * 1024),
        replace(QUEUE, requires_session=True, requires_duplicate_detection=True, enable_partitioning=True),
        replace(QUEUE, requires_session=True, forward_dead_lettered_messages_to="dead"),
        replace(QUEUE, enable_express=True),
        replace(TOPIC, requires_duplicate_detection=True, enable_partitioning=True),
        replace(SUBSCRIPTION, requires_session=True),
    ],
)
def test_the_edges_of_what_standard_allows(entity: Entity) -> None:
    check(entity)


WINDOW = ("00:00:20", "7.00:00:00", "DuplicateDetectionHistoryTimeWindow")
IDLE = ("00:05:00", "10675199.02:48:05.4775807", "AutoDeleteOnIdle")
LIFE = ("00:00:01", "10675199.02:48:05.4775807", "DefaultMessageTimeToLive")
LOCK = "The supplied lock time exceeds the allowed maximum of '5' minutes."
METADATA = "The argument 'UserMetadata' cannot exceed 1024 characters.\nParameter name: UserMetadata"


def test_the_operator_can_allow_longer_windows() -> None:
    generous = replace(STANDARD, longest_window=30 * DAY)
    check(replace(QUEUE, duplicate_detection_history_time_window=30 * DAY), generous)
    check(replace(TOPIC, duplicate_detection_history_time_window=30 * DAY), generous)
    longer = replace(QUEUE, duplicate_detection_history_time_window=30 * DAY + 1)
    name = "DuplicateDetectionHistoryTimeWindow"
    assert refusal(longer, generous) == between("00:00:20", "30.00:00:00", name, "30.00:00:00.0000010")


def test_an_entity_keeps_a_window_that_is_longer_than_the_limit_has_become() -> None:
    old = fill_in(replace(QUEUE, duplicate_detection_history_time_window=30 * DAY), STANDARD)
    check_entity(replace(old, max_delivery_count=3), Occasion(STANDARD, "updating", old))
    for window in (20 * DAY, 31 * DAY):
        with pytest.raises(OutOfRange):
            check_entity(
                replace(old, duplicate_detection_history_time_window=window), Occasion(STANDARD, "updating", old)
            )


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (replace(QUEUE, duplicate_detection_history_time_window=25 * DAY), between(*WINDOW, "25.00:00:00")),
        (replace(QUEUE, duplicate_detection_history_time_window=20 * SECOND - 1), between(*WINDOW, "00:00:19.9999990")),
        (replace(TOPIC, duplicate_detection_history_time_window=7 * DAY + 1), between(*WINDOW, "7.00:00:00.0000010")),
        (replace(TOPIC, duplicate_detection_history_time_window=-SECOND), between(*WINDOW, "-00:00:01")),
        (replace(QUEUE, lock_duration=5 * MINUTE + 1), LOCK),
        (replace(SUBSCRIPTION, lock_duration=NO_LIMIT), LOCK),
        (replace(QUEUE, lock_duration=0), between("00:00:01", "00:05:00", "LockDuration", "00:00:00")),
        (replace(QUEUE, max_delivery_count=0), between("1", "2000", "MaxDeliveryCount", "0")),
        (replace(SUBSCRIPTION, max_delivery_count=2001), between("1", "2000", "MaxDeliveryCount", "2001")),
        (replace(QUEUE, auto_delete_on_idle=5 * MINUTE - SECOND), between(*IDLE, "00:04:59")),
        (replace(TOPIC, auto_delete_on_idle=0), between(*IDLE, "00:00:00")),
        (replace(SUBSCRIPTION, auto_delete_on_idle=0), between(*IDLE, "00:00:00")),
        (replace(QUEUE, default_message_time_to_live=0), between(*LIFE, "00:00:00")),
        (replace(TOPIC, default_message_time_to_live=0), between(*LIFE, "00:00:00")),
        (replace(SUBSCRIPTION, default_message_time_to_live=0), between(*LIFE, "00:00:00")),
        (replace(QUEUE, user_metadata="x" * 1025), METADATA),
        (replace(SUBSCRIPTION, user_metadata="x" * 1025), METADATA),
    ],
)
def test_values_out_of_range_are_refused(entity: Entity, text: str) -> None:
    assert refusal(entity) == text
    with pytest.raises(OutOfRange) as raised:
        check(entity)
    assert hasattr(entity, raised.value.field or "")


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (
            replace(QUEUE, enable_express=True, requires_duplicate_detection=True),
            "Both DelayedPersistence and RequiresDuplicateDetection property cannot be enabled together.",
        ),
        (
            replace(TOPIC, enable_express=True, requires_duplicate_detection=True),
            "Both DelayedPersistence and RequiresDuplicateDetection property cannot be enabled together.",
        ),
        (
            replace(QUEUE, is_anonymous_accessible=True),
            "Anonymous access is not supported.\nParameter name: IsAnonymousAccessible",
        ),
        (
            replace(TOPIC, authorization_rules=(RULE, RULE)),
            "The authorization rule name 'rule' is used more than once.",
        ),
        (replace(QUEUE, name=""), "The entity path is empty."),
        (replace(TOPIC, name="/"), "The entity path '/' cannot contain '/' as prefix or suffix."),
        (replace(SUBSCRIPTION, name="s" * 51), f"Entity name '{'s' * 51}' exceeds the '50' character limit."),
    ],
)
def test_invalid_combinations_are_refused(entity: Entity, text: str) -> None:
    assert refusal(entity) == text


@pytest.mark.parametrize("size", [0, 1, 1000, 6144, 16384, 81920])
def test_sizes_that_standard_does_not_have_are_refused(size: int) -> None:
    for entity in (replace(QUEUE, max_size_in_megabytes=size), replace(TOPIC, max_size_in_megabytes=size)):
        assert refusal(entity) == (
            f"The specified value {size} is invalid. The property 'MaxSizeInMegabytes', must be one of the following"
            " values: 1024;2048;3072;4096;5120."
        )


def test_premium_has_larger_sizes() -> None:
    for size in (1024, 5120, 10240, 20480, 40960, 81920):
        check(replace(QUEUE, max_size_in_megabytes=size), PREMIUM)
    assert refusal(replace(QUEUE, max_size_in_megabytes=6144), PREMIUM).endswith(
        "values: 1024;2048;3072;4096;5120;10240;20480;40960;81920."
    )


def test_the_size_of_a_partitioned_entity_is_multiplied_by_sixteen_only_once() -> None:
    shown = fill_in(replace(QUEUE, enable_partitioning=True, max_size_in_megabytes=5120), STANDARD)
    assert shown.max_size_in_megabytes == 81920
    assert fill_in(shown, STANDARD) == shown
    check(shown)
    assert "The specified value 6144 is invalid." in refusal(
        replace(QUEUE, enable_partitioning=True, max_size_in_megabytes=6144)
    )


@pytest.mark.parametrize(
    ("queue", "name"),
    [
        (replace(QUEUE, requires_duplicate_detection=True), "RequiresDuplicateDetection"),
        (replace(QUEUE, requires_session=True), "RequiresSession"),
        (replace(QUEUE, duplicate_detection_history_time_window=MINUTE), "DuplicateDetectionHistoryTimeWindow"),
        (replace(QUEUE, auto_delete_on_idle=DAY), "AutoDeleteOnIdle"),
        (replace(QUEUE, forward_to="other"), "ForwardTo"),
        (replace(QUEUE, forward_dead_lettered_messages_to="other"), "ForwardDeadLetteredMessagesTo"),
    ],
)
def test_features_that_basic_does_not_have_are_refused(queue: Queue, name: str) -> None:
    for verb in ("creating", "updating"):
        assert refusal(queue, BASIC, verb) == (
            f"The property '{name}' cannot be set when {verb} a Queue because the namespace 'ns' is using the 'Basic'"
            f" tier. This operation is only supported in 'Standard' or 'Premium' tier.\nParameter name: {name}"
        )
    check(queue)
    check(queue, PREMIUM)


def test_basic_has_partitions_but_no_topics() -> None:
    check(replace(QUEUE, enable_partitioning=True), BASIC)
    assert refusal(TOPIC, BASIC) == "Cannot operate on type Topic because the namespace 'ns' is using 'Basic' tier."


def test_basic_keeps_messages_for_a_fortnight_at_most() -> None:
    check(replace(QUEUE, default_message_time_to_live=14 * DAY), BASIC)
    for value in (0, 14 * DAY + 1):
        assert refusal(replace(QUEUE, default_message_time_to_live=value), BASIC) == (
            "The property value for 'DefaultMessageTimeToLive' must be between 00:00:01 and 14.00:00:00 when the"
            " namespace 'ns' is using 'Basic' tier.\nParameter name: DefaultMessageTimeToLive"
        )


@pytest.mark.parametrize("namespace", [BASIC, PREMIUM])
def test_only_standard_has_express_entities(namespace: Namespace) -> None:
    assert refusal(replace(QUEUE, enable_express=True), namespace) == (
        f"The property 'EnableExpress' cannot be set when creating a Queue because the namespace 'ns' is using the"
        f" '{namespace.tier}' tier. This operation is only supported in 'Standard' tier.\nParameter name: EnableExpress"
    )


def test_premium_detects_duplicates_but_has_no_partitions() -> None:
    check(replace(QUEUE, requires_duplicate_detection=True), PREMIUM)
    for entity in (replace(QUEUE, enable_partitioning=True), replace(TOPIC, enable_partitioning=True)):
        assert refusal(entity, PREMIUM) == (
            f"The property 'EnablePartitioning' cannot be set when creating a {type(entity).__name__} because the"
            " namespace 'ns' is using the 'Premium' tier. This operation is only supported in 'Basic' or 'Standard'"
            " tier.\nParameter name: EnablePartitioning"
        )


def test_only_premium_has_large_messages() -> None:
    check(replace(QUEUE, max_message_size_in_kilobytes=102400), PREMIUM)
    for size in (256, 1023, 102401):
        assert refusal(replace(QUEUE, max_message_size_in_kilobytes=size), PREMIUM) == (
            "The property value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400 when the namespace"
            " 'ns' is using 'Premium' tier.\nParameter name: MaxMessageSizeInKilobytes"
        )
    assert refusal(replace(TOPIC, max_message_size_in_kilobytes=1024)) == (
        "The property 'MaxMessageSizeInKilobytes' cannot be set when creating a Topic because the namespace 'ns' is"
        " using the 'Standard' tier. This operation is only supported in 'Premium' tier."
        "\nParameter name: MaxMessageSizeInKilobytes"
    )


def test_a_forward_target_is_kept_as_a_path() -> None:
    queue = fill_in(replace(QUEUE, forward_to="sb://host/a/b", forward_dead_lettered_messages_to=""), STANDARD)
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to) == ("a/b", None)
    subscription = fill_in(replace(SUBSCRIPTION, forward_to=""), STANDARD)
    assert subscription.forward_to is None


@pytest.mark.parametrize("entity", [QUEUE, SUBSCRIPTION])
def test_an_entity_with_sessions_may_forward(entity: Queue | Subscription) -> None:
    check(replace(entity, requires_session=True, forward_to="other"))


def test_forwarding_needs_an_entity_that_takes_messages() -> None:
    check_forward_target("forward_to", "other", Queue(name="other"))
    check_forward_target("forward_to", "news", TOPIC)
    for target in (None, SUBSCRIPTION):
        with pytest.raises(BadRequest) as raised:
            check_forward_target("forward_to", "gone", target)
        assert raised.value.detail == (
            "SubCode=40400. The auto forwarding destination entity 'gone' does not exist.\nParameter name: ForwardTo"
        )


IMMUTABLE = "The value for the {} property of an existing {} cannot be changed."


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (replace(QUEUE, requires_session=True), IMMUTABLE.format("RequiresSession", "Queue")),
        (replace(QUEUE, requires_duplicate_detection=True), IMMUTABLE.format("RequiresDuplicateDetection", "Queue")),
        (replace(QUEUE, enable_partitioning=True), "Partitioning cannot be changed for Queue."),
        (replace(TOPIC, requires_duplicate_detection=True), IMMUTABLE.format("RequiresDuplicateDetection", "Topic")),
        (replace(TOPIC, enable_partitioning=True), "Partitioning cannot be changed for Topic."),
        (replace(SUBSCRIPTION, requires_session=True), IMMUTABLE.format("RequiresSession", "Subscription")),
    ],
)
def test_properties_fixed_at_creation_cannot_be_changed_in_either_direction(new: Entity, text: str) -> None:
    originals: dict[type[Entity], Entity] = {Queue: QUEUE, Topic: TOPIC, Subscription: SUBSCRIPTION}
    old = originals[type(new)]
    for one, other in ((old, new), (new, old)):
        with pytest.raises(BadRequest) as raised:
            check_change(one, other)
        assert (raised.value.sub_code, str(raised.value)) == (40000, text)
    check_change(new, new)


def test_the_window_and_the_rest_may_be_changed() -> None:
    old = replace(QUEUE, requires_duplicate_detection=True)
    new = replace(
        old,
        duplicate_detection_history_time_window=DAY,
        lock_duration=SECOND,
        max_delivery_count=3,
        max_size_in_megabytes=2048,
        user_metadata="x",
        forward_to="other",
    )
    check_change(old, new)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("r", SqlFilter("x" * 1024), SqlAction("y" * 1024)), None),
        (Rule("r", CorrelationFilter(properties=(("a", 1), ("A", 2)))), None),
        (Rule(), None),
        (Rule("r/s"), "'r/s' contains character(s) that is not allowed by Service Bus."),
        (Rule("r", SqlFilter(" ")), "The argument 'sqlExpression' is null or white space."),
        (Rule("r", SqlFilter("x" * 1025)), "The argument 'sqlExpression' cannot exceed 1024 characters."),
        (Rule("r", SqlFilter("\U0001f600" * 513)), "The argument 'sqlExpression' cannot exceed 1024 characters."),
        (Rule("r", action=SqlAction("x" * 1025)), "The argument 'sqlExpression' cannot exceed 1024 characters."),
        (
            Rule("r", CorrelationFilter(properties=(("a", 1), ("a", 2)))),
            "The property 'a' is in the correlation filter more than once.",
        ),
    ],
)
def test_the_limits_on_rules(rule: Rule, text: str | None) -> None:
    if text is None:
        check_rule(rule)
        return
    with pytest.raises(BadRequest) as raised:
        check_rule(rule)
    assert str(raised.value).startswith(text)


# Authorization rules

AUTHORIZATION_RULE = AuthorizationRule("reader", frozenset({Right.LISTEN}), "secret-one", "secret-two")


def test_entities_and_the_namespace_have_the_same_kind_of_rule() -> None:
    assert (AuthorizationRule, Right) == (access.AuthorizationRule, access.Right)


def test_keys_show_up_in_no_repr() -> None:
    assert "secret" not in repr(AUTHORIZATION_RULE)
    assert "secret" not in repr(Queue(name="orders", authorization_rules=(AUTHORIZATION_RULE,)))
    assert "reader" in repr(AUTHORIZATION_RULE)


def test_a_name_is_used_once_in_any_letter_case() -> None:
    with pytest.raises(EntityError) as raised:
        check_authorization_rules([AUTHORIZATION_RULE, replace(AUTHORIZATION_RULE, name="Reader")])
    text = "The authorization rule name 'Reader' is used more than once."
    assert (raised.value.kind, raised.value.sub_code, str(raised.value)) == (ErrorKind.BAD_REQUEST, 40000, text)


def test_an_entity_has_at_most_twelve_rules() -> None:
    rules = [replace(AUTHORIZATION_RULE, name=f"rule{number}") for number in range(13)]
    check_authorization_rules(rules[:12])
    with pytest.raises(EntityError) as raised:
        check_authorization_rules(rules)
    assert raised.value.kind is ErrorKind.QUOTA
    assert str(raised.value) == "The entity has 13 authorization rules, but at most 12 are allowed."
