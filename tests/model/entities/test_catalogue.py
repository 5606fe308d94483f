from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncebus.model.entities import (
    BadRequest,
    Catalogue,
    CorrelationFilter,
    EntityError,
    FalseFilter,
    Namespace,
    NotFound,
    Queue,
    QuotaExceeded,
    Rule,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.errors import AlreadyExists
from oncebus.values.durations import DAY, MINUTE, SECOND
from oncebus.values.errors import ErrorKind

T1, T2 = 1_000_000, 2_000_000
NAMESPACE = Namespace("ns")
EMPTY = Catalogue(namespace=NAMESPACE)
SOME = (
    EMPTY.create(Queue(name="Orders", requires_duplicate_detection=True), T1)
    .create(Topic(name="News/World"), T1)
    .create(Subscription(topic="news/world", name="All"), T1)
)


def test_a_creation_gives_an_id_times_and_the_next_version() -> None:
    assert [SOME.version, SOME.next_id] == [3, 4]
    queue = SOME.queue("orders")
    assert (queue.name, queue.id, queue.created_at, queue.updated_at) == ("Orders", 1, T1, T1)
    assert EMPTY.find("Orders") is None, "a catalogue never changes"


def test_id_and_times_from_the_caller_are_ignored() -> None:
    made = EMPTY.create(Queue(name="a", id=77, created_at=5, updated_at=6), T1).queue("a")
    assert (made.id, made.created_at, made.updated_at) == (1, T1, T1)
    sub = Subscription(topic="News/World", name="x", id=77, topic_id=88, rules=(Rule("mine"),))
    subscription = SOME.create(sub, T1).subscription("news/world", "x")
    assert (subscription.id, subscription.topic_id) == (4, 2)
    assert [rule.name for rule in subscription.rules] == ["$Default"]


def test_entities_are_found_by_path_in_any_case_and_by_id() -> None:
    assert SOME.find("ORDERS") == SOME.entity(1) == SOME.queue("Orders")
    assert SOME.find("news/WORLD") == SOME.entity(2) == SOME.topic("News/World")
    found = SOME.find("news/world/subscriptions/all")
    assert found == SOME.entity(3) == SOME.subscription("NEWS/world", "ALL")
    assert isinstance(found, Subscription)
    assert (found.topic, found.topic_id, found.path) == ("News/World", 2, "News/World/Subscriptions/All")
    assert SOME.entity(4) is None
    assert SOME.find("nothing") is None


def test_lists_are_in_the_order_of_names() -> None:
    catalogue = SOME
    for name in ("b", "A", "c"):
        catalogue = catalogue.create(Queue(name=name), T1).create(Topic(name=f"t{name}"), T1)
        catalogue = catalogue.create(Subscription(topic="News/World", name=name), T1)
    assert [queue.name for queue in catalogue.queues] == ["A", "b", "c", "Orders"]
    assert [topic.name for topic in catalogue.topics] == ["News/World", "tA", "tb", "tc"]
    names = [subscription.name for subscription in catalogue.subscriptions_of("news/world")]
    assert names == ["A", "All", "b", "c"]
    assert catalogue.subscriptions_of(catalogue.topic("news/world")) == catalogue.subscriptions_of("News/World")
    assert catalogue.subscriptions_of("ta") == catalogue.subscriptions_of("nothing") == ()
    assert catalogue.subscriptions_of("Orders") == ()


def test_a_subscription_inherits_the_window_of_its_topic() -> None:
    topic = Topic(name="t", requires_duplicate_detection=True, duplicate_detection_history_time_window=DAY)
    catalogue = SOME.create(topic, T1).create(Subscription(topic="t", name="s"), T1)
    assert catalogue.window_of(catalogue.subscription("t", "s")) == DAY
    assert catalogue.window_of(catalogue.queue("orders")) == 10 * MINUTE
    assert catalogue.window_of(catalogue.subscription("news/world", "all")) is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda: SOME.create(Queue(name="oRDERS"), T2), "oRDERS"),
        (lambda: SOME.create(Topic(name="orders"), T2), "orders"),
        (lambda: SOME.create(Queue(name="news/world"), T2), "news/world"),
        (
            lambda: SOME.create(Subscription(topic="news/world", name="ALL"), T2),
            "News/World/Subscriptions/ALL",
        ),
        (
            lambda: SOME.create_rule("news/world", "all", Rule("$default"), T2),
            "News/World/Subscriptions/All/Rules/$default",
        ),
    ],
)
def test_a_name_is_taken_in_any_letter_case(change: Callable[[], Catalogue], path: str) -> None:
    with pytest.raises(AlreadyExists) as raised:
        change()
    assert (raised.value.kind, raised.value.detail) == (
        ErrorKind.EXISTS,
        f"SubCode=40900. The messaging entity '{path}' already exists.",
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda: SOME.queue("no"), "no"),
        (lambda: SOME.queue("news/world"), "news/world"),
        (lambda: SOME.topic("orders"), "orders"),
        (lambda: SOME.update(Queue(name="no"), T2), "no"),
        (lambda: SOME.update(Topic(name="no"), T2), "no"),
        (lambda: SOME.delete(Queue(name="news/world")), "news/world"),
        (lambda: SOME.delete(Topic(name="orders")), "orders"),
        (lambda: SOME.create(Subscription(topic="orders", name="s"), T2), "orders"),
        (
            lambda: SOME.update(Subscription(topic="news/world", name="no"), T2),
            "news/world/Subscriptions/no",
        ),
        (lambda: SOME.delete(Subscription(topic="news/world", name="no")), "news/world/Subscriptions/no"),
        (lambda: SOME.rule("news/world", "all", "no"), "news/world/Subscriptions/all/Rules/no"),
        (lambda: SOME.update_rule("news/world", "all", Rule("no")), "news/world/Subscriptions/all/Rules/no"),
        (lambda: SOME.delete_rule("news/world", "all", "no"), "news/world/Subscriptions/all/Rules/no"),
    ],
)
def test_a_missing_entity_is_not_found(change: Callable[[], object], path: str) -> None:
    with pytest.raises(NotFound) as raised:
        change()
    assert (raised.value.kind, raised.value.detail) == (
        ErrorKind.NOT_FOUND,
        f"SubCode=40400. The messaging entity '{path}' could not be found.",
    )


def test_an_update_keeps_name_id_and_creation() -> None:
    window = 20 * SECOND
    given = Queue(
        name="ORDERS", id=9, requires_duplicate_detection=True, duplicate_detection_history_time_window=window
    )
    catalogue = SOME.update(given, T2)
    queue = catalogue.queue("orders")
    assert (queue.name, queue.id, queue.created_at, queue.updated_at) == ("Orders", 1, T1, T2)
    assert queue.window == window
    assert [catalogue.version, catalogue.next_id] == [4, 4]
    assert SOME.queue("orders").window == 10 * MINUTE


def test_an_update_without_changes_only_changes_the_time() -> None:
    catalogue = SOME.create(Queue(name="p", enable_partitioning=True, max_size_in_megabytes=2048), T1)
    queue, topic = catalogue.queue("p"), catalogue.topic("news/world")
    subscription = catalogue.subscription("news/world", "all")
    after = catalogue.update(queue, T2).update(topic, T2).update(subscription, T2)
    assert after.queue("p") == replace(queue, updated_at=T2)
    assert after.topic("news/world") == replace(topic, updated_at=T2)
    assert after.subscription("news/world", "all") == replace(subscription, updated_at=T2)


def test_a_clock_that_steps_back_makes_no_update_older() -> None:
    later = SOME.update(SOME.queue("orders"), T2)
    assert later.update(SOME.queue("orders"), T1).queue("orders").updated_at == T2


def test_updates_obey_the_rules_of_changes_and_of_descriptions() -> None:
    with pytest.raises(BadRequest, match="RequiresDuplicateDetection property of an existing Queue"):
        SOME.update(Queue(name="orders"), T2)
    with pytest.raises(BadRequest, match="Partitioning cannot be changed for Topic"):
        SOME.update(Topic(name="news/world", enable_partitioning=True), T2)
    with pytest.raises(BadRequest, match="RequiresSession property of an existing Subscription"):
        SOME.update(Subscription(topic="news/world", name="all", requires_session=True), T2)
    with pytest.raises(BadRequest, match="MaxDeliveryCount"):
        SOME.update(Subscription(topic="news/world", name="all", max_delivery_count=0), T2)
    basic = Catalogue(namespace=Namespace("ns", Tier.BASIC)).create(Queue(name="q"), T1)
    with pytest.raises(BadRequest, match="cannot be set when updating a Queue"):
        basic.update(Queue(name="q", auto_delete_on_idle=DAY), T2)


def test_a_queue_that_is_created_again_has_a_new_id() -> None:
    again = SOME.delete(Queue(name="orders")).create(Queue(name="Orders"), T2)
    assert again.queue("orders").id == 4
    assert again.entity(1) is None


def test_deleting_a_topic_deletes_its_subscriptions() -> None:
    other = SOME.create(Topic(name="news"), T1).create(Subscription(topic="news", name="all"), T1)
    gone = other.delete(Topic(name="NEWS/World"))
    assert [gone.entity(number) for number in (2, 3)] == [None, None]
    assert gone.find("news/world/subscriptions/all") is None
    assert gone.subscription("news", "all").id == 5
    made = gone.create(Topic(name="News/World"), T2)
    assert made.subscriptions_of("news/world") == ()


def test_a_new_subscription_selects_all_messages_by_default() -> None:
    assert SOME.subscription("news/world", "all").rules == (Rule("$Default", TrueFilter(), None, T1),)
    rules = [Rule("a", FalseFilter()), Rule("b", SqlFilter("x = 1"))]
    made = SOME.create(Subscription(topic="news/world", name="s"), T2, rules)
    assert made.subscription("news/world", "s").rules == tuple(replace(rule, created_at=T2) for rule in rules)
    none = SOME.create(Subscription(topic="news/world", name="s"), T2, [])
    assert none.subscription("news/world", "s").rules == ()
    with pytest.raises(AlreadyExists):
        SOME.create(Subscription(topic="news/world", name="s"), T2, [Rule("a"), Rule("A")])


def test_rules_are_created_updated_and_deleted() -> None:
    at = ("news/world", "all")
    one = SOME.create_rule(*at, Rule("Red", SqlFilter("colour = 'red'")), T2)
    assert [rule.name for rule in one.subscription(*at).rules] == ["$Default", "Red"]
    assert one.rule(*at, "RED").created_at == T2
    two = one.update_rule(*at, Rule("red", CorrelationFilter(label="red")))
    assert two.rule(*at, "red") == Rule("Red", CorrelationFilter(label="red"), None, T2)
    three = two.delete_rule(*at, "$default")
    assert [rule.name for rule in three.subscription(*at).rules] == ["Red"]
    assert [each.version for each in (SOME, one, two, three)] == [3, 4, 5, 6]
    kept = three.update(Subscription(topic=at[0], name=at[1], max_delivery_count=3), T2)
    assert kept.subscription(*at).rules == three.subscription(*at).rules
    with pytest.raises(BadRequest, match="sqlExpression"):
        three.update_rule(*at, Rule("red", SqlFilter("")))


def test_forwarding_leads_to_an_existing_entity() -> None:
    catalogue = SOME.create(
        Queue(name="in", forward_to="sb://host/ORDERS", forward_dead_lettered_messages_to="news/world"), T1
    )
    queue = catalogue.queue("in")
    assert catalogue.forward_target(queue.forward_to) == catalogue.queue("orders")
    assert catalogue.forward_target(queue.forward_dead_lettered_messages_to) == catalogue.topic("news/world")
    assert catalogue.forward_target(None) is None
    without = catalogue.delete(Queue(name="orders"))
    assert without.forward_target(queue.forward_to) is None
    # An unchanged target may stay, even if it no longer exists.
    assert without.update(replace(queue, max_delivery_count=3), T2).queue("in").forward_to == queue.forward_to
    with pytest.raises(BadRequest, match="destination entity 'Orders' does not exist"):
        without.update(replace(queue, forward_to="Orders"), T2)
    again = without.create(Queue(name="orders"), T2)
    assert again.forward_target(queue.forward_to) == again.queue("orders")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Queue(name="a", forward_to="no"), "The auto forwarding destination entity 'no' does not exist."),
        (
            Queue(name="a", forward_dead_lettered_messages_to="news/world/subscriptions/all"),
            "The auto forwarding destination entity 'news/world/subscriptions/all' does not exist.",
        ),
    ],
)
def test_forwarding_to_nothing_is_refused(source: Queue, text: str) -> None:
    with pytest.raises(BadRequest) as raised:
        SOME.create(source, T2)
    assert str(raised.value).splitlines()[0] == text


@pytest.mark.parametrize(
    "source", [Queue(name="a", forward_to="A"), Queue(name="a", forward_dead_lettered_messages_to="/a")]
)
def test_forwarding_to_itself_is_accepted(source: Queue) -> None:
    for made in (SOME.create(source, T2), SOME.create(Queue(name="a"), T1).update(source, T2)):
        target = made.queue("a").forward_to or made.queue("a").forward_dead_lettered_messages_to
        assert made.forward_target(target) == made.queue("a")


def test_a_subscription_forwards_to_any_queue_or_topic() -> None:
    made = SOME.create(Subscription(topic="news/world", name="s", forward_to="orders"), T2)
    assert made.subscription("news/world", "s").forward_to == "orders"
    with pytest.raises(BadRequest, match="does not exist"):
        SOME.create(Subscription(topic="news/world", name="s", forward_to="no"), T2)


def test_the_number_of_entities_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebus.model.entities.catalogue.MOST_QUEUES_AND_TOPICS", 2)
    monkeypatch.setattr("oncebus.model.entities.catalogue.MOST_SUBSCRIPTIONS", 1)
    with pytest.raises(QuotaExceeded) as raised:
        SOME.create(Queue(name="a"), T2)
    assert (raised.value.kind, raised.value.detail) == (
        ErrorKind.QUOTA,
        "SubCode=40300. The maximum entity count has been reached or exceeded for Namespace: 'ns'."
        " At most 2 queues and topics are allowed.",
    )
    with pytest.raises(QuotaExceeded) as raised:
        SOME.create(Subscription(topic="news/world", name="s"), T2)
    assert str(raised.value) == (
        "The maximum entity count has been reached or exceeded for Topic: 'News/World'."
        " At most 1 subscriptions are allowed."
    )
    SOME.delete(Queue(name="orders")).create(Queue(name="a"), T2)


def test_a_topic_has_two_thousand_sql_filters_over_all_subscriptions() -> None:
    rules = [Rule(f"r{number}", SqlFilter("1 = 1")) for number in range(1000)]
    full = SOME.create(Subscription(topic="news/world", name="a"), T1, rules)
    full = full.create(Subscription(topic="news/world", name="b"), T1, rules)
    with pytest.raises(QuotaExceeded, match="At most 2000 SQL filters are allowed"):
        full.create_rule("news/world", "all", Rule("more", SqlFilter("1 = 1")), T2)
    with pytest.raises(QuotaExceeded):
        full.update_rule("news/world", "all", Rule("$Default", SqlFilter("1 = 1")))
    full.create_rule("news/world", "all", Rule("more", CorrelationFilter(label="x")), T2)
    full.update_rule("news/world", "a", Rule("r1", SqlFilter("2 = 2")))


def test_another_tier_takes_over_the_entities_that_it_supports() -> None:
    premium = SOME.change_tier(Tier.PREMIUM)
    assert premium.namespace == Namespace("ns", Tier.PREMIUM)
    assert premium.version == 4
    assert premium.queue("orders").max_message_size_in_kilobytes == 1024
    assert premium.change_tier(Tier.STANDARD).entities == SOME.entities
    with pytest.raises(BadRequest, match="cannot be set when keeping a Queue"):
        SOME.change_tier(Tier.BASIC)
    with pytest.raises(BadRequest, match="EnablePartitioning"):
        SOME.create(Queue(name="p", enable_partitioning=True), T1).change_tier(Tier.PREMIUM)
    plain = EMPTY.create(Queue(name="q"), T1).change_tier(Tier.BASIC)
    assert plain.queue("q").default_message_time_to_live == 14 * DAY


def test_a_catalogue_can_be_pickled() -> None:
    assert SOME.entity(1) is not None
    assert pickle.loads(pickle.dumps(SOME)) == SOME


def test_refusals_are_errors_of_one_family() -> None:
    for error in (AlreadyExists("a"), NotFound("a"), QuotaExceeded("a"), BadRequest("a")):
        assert isinstance(error, EntityError)
        assert error.detail.startswith(f"SubCode={error.sub_code}. ")
