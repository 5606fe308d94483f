"""The administration client of azure-servicebus, unmodified, against a broker behind TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from oncebus.amqp.message import encode_body
from oncebus.broker.sending import Incoming
from oncebus.model.access import Right
from oncebus.model.entities import NO_LIMIT
from tests.protocols.atom.admin import without_tracking
from tests.protocols.atom.served import Service, administration


def test_the_namespace(client: ServiceBusAdministrationClient) -> None:
    found = client.get_namespace_properties()
    assert (found.name, found.messaging_sku, found.namespace_type) == ("oncebus", "Standard", "Messaging")
    assert found.created_at_utc is not None
    assert found.modified_at_utc is not None


def test_a_queue_from_creation_to_deletion(client: ServiceBusAdministrationClient) -> None:
    made = client.create_queue(
        "life/of/a-queue",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(days=7),
        requires_session=True,
        lock_duration=timedelta(seconds=13),
        max_delivery_count=14,
        default_message_time_to_live=timedelta(minutes=11),
        auto_delete_on_idle=timedelta(minutes=10),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=False,
        max_size_in_megabytes=3072,
        user_metadata="größer & <schöner>",
        enable_partitioning=True,
        status="ReceiveDisabled",
    )
    found = client.get_queue("life/of/a-queue")
    assert found == made
    assert found.duplicate_detection_history_time_window == timedelta(days=7)
    assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=13), 14)
    assert (found.default_message_time_to_live, found.auto_delete_on_idle) == (
        timedelta(minutes=11),
        timedelta(minutes=10),
    )
    assert (found.user_metadata, found.status) == ("größer & <schöner>", "ReceiveDisabled")
    # The description shows the size of all 16 partitions.
    assert (found.enable_partitioning, found.max_size_in_megabytes) == (True, 16 * 3072)
    found.max_delivery_count = 5
    client.update_queue(found)
    client.update_queue(found, lock_duration="PT40S")
    again = client.get_queue("life/of/a-queue")
    assert (again.max_delivery_count, again.lock_duration) == (5, timedelta(seconds=40))
    assert again.requires_duplicate_detection is True
    client.delete_queue("life/of/a-queue")
    with pytest.raises(ResourceNotFoundError, match="Queue 'life/of/a-queue' does not exist"):
        client.get_queue("life/of/a-queue")


def test_an_unlimited_time_to_live_survives_an_update(client: ServiceBusAdministrationClient, service: Service) -> None:
    made = client.create_queue("forever")
    assert isinstance(made.default_message_time_to_live, timedelta)
    assert made.default_message_time_to_live.days == 10675199
    client.update_queue(made)
    assert service.broker.catalogue.queue("forever").default_message_time_to_live == NO_LIMIT


def test_a_topic_and_its_subscriptions(client: ServiceBusAdministrationClient) -> None:
    made = client.create_topic(
        "t/news", requires_duplicate_detection=True, duplicate_detection_history_time_window="PT1H", user_metadata="x"
    )
    assert client.get_topic("t/news") == made
    client.update_topic(made, max_size_in_megabytes=2048)
    assert client.get_topic("t/news").max_size_in_megabytes == 2048
    subscription = client.create_subscription("t/news", "all", max_delivery_count=3, lock_duration="PT5S")
    assert client.get_subscription("t/news", "all") == subscription
    client.update_subscription("t/news", subscription, dead_lettering_on_message_expiration=True)
    found = client.get_subscription("t/news", "all")
    assert (found.dead_lettering_on_message_expiration, found.max_delivery_count) == (True, 3)
    client.create_subscription("t/news", "more")
    assert [each.name for each in client.list_subscriptions("t/news")] == ["all", "more"]
    assert client.get_topic_runtime_properties("t/news").subscription_count == 2
    client.delete_subscription("t/news", "more")
    assert [each.name for each in client.list_subscriptions("t/news")] == ["all"]
    client.delete_topic("t/news")
    for look in (lambda: client.get_topic("t/news"), lambda: client.get_subscription("t/news", "all")):
        with pytest.raises(ResourceNotFoundError):
            look()


PARAMETERS: dict[str, str | int | float | bool | datetime | timedelta] = {
    "@text": "ödeme <&>",
    "@int": 5,
    "@long": 2**40,
    "@double": 1.5,
    "@flag": True,
    "@moment": datetime(2026, 1, 31, 8, 30, tzinfo=UTC),
    "@span": timedelta(days=3, seconds=2),
}


# The client tests an element by its truth, which Python warns about from 3.12 on.
@pytest.mark.filterwarnings(
    "ignore:Testing an element's truth value:DeprecationWarning:azure.servicebus.management._utils"
)
def test_rules_of_every_kind_with_values_of_every_type(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("ruled")
    client.create_subscription("ruled", "some")
    sql = SqlRuleFilter("color = @text AND size > @int", parameters=PARAMETERS)
    client.create_rule("ruled", "some", "sql", filter=sql, action=SqlRuleAction("SET n = @int", parameters={"@int": 7}))
    properties = {name.removeprefix("@"): value for name, value in PARAMETERS.items()}
    correlation = CorrelationRuleFilter(label="x", session_id="s", content_type="text/plain", properties=properties)
    client.create_rule("ruled", "some", "correlation", filter=correlation)
    client.create_rule("ruled", "some", "none", filter=FalseRuleFilter())
    found = {rule.name: rule for rule in client.list_rules("ruled", "some")}
    # By name, not in the order they were created in.
    assert list(found) == ["$Default", "correlation", "none", "sql"]
    assert isinstance(found["$Default"].filter, TrueRuleFilter)
    assert isinstance(found["none"].filter, FalseRuleFilter)
    assert found["none"].action is None
    chosen = found["sql"].filter
    assert isinstance(chosen, SqlRuleFilter)
    assert (chosen.sql_expression, dict(chosen.parameters or {})) == (sql.sql_expression, PARAMETERS)
    action = client.get_rule("ruled", "some", "sql").action
    assert action is not None
    assert (action.sql_expression, dict(action.parameters or {})) == ("SET n = @int", {"@int": 7})
    one = found["correlation"].filter
    assert isinstance(one, CorrelationRuleFilter)
    assert (one.label, one.session_id, one.content_type, one.correlation_id) == ("x", "s", "text/plain", None)
    assert dict(one.properties or {}) == properties
    rule = found["sql"]
    rule.filter = SqlRuleFilter("a = 1")
    rule.action = None
    client.update_rule("ruled", "some", rule)
    changed = client.get_rule("ruled", "some", "sql")
    assert isinstance(changed.filter, SqlRuleFilter)
    assert (changed.filter.sql_expression, changed.action) == ("a = 1", None)
    client.delete_rule("ruled", "some", "sql")
    with pytest.raises(ResourceNotFoundError):
        client.get_rule("ruled", "some", "sql")
    counts = client.get_topic_runtime_properties("ruled")
    # True and false filters count as SQL filters.
    assert (counts.correlation_filter_count, counts.sql_filter_count) == (1, 2)


def test_lists_in_pages(client: ServiceBusAdministrationClient) -> None:
    names = [f"paged-{number}" for number in range(7)]
    for name in names:
        client.create_topic(name)
    pages = client.list_topics(max_page_size=3).by_page()
    found = [[topic.name for topic in page] for page in pages]
    assert max(map(len, found)) == 3
    assert [name for page in found for name in page if name.startswith("paged-")] == names
    assert {each.name for each in client.list_topics_runtime_properties()} >= set(names)


def test_counts_of_queues_and_subscriptions(client: ServiceBusAdministrationClient, service: Service) -> None:
    client.create_queue("holding")
    client.create_topic("telling")
    client.create_subscription("telling", "all")
    message = Incoming(b"", encode_body(b"hello"))
    service.run(service.broker.send("holding", [message, message]))
    service.run(service.broker.send("telling", [message]))
    queue = client.get_queue_runtime_properties("holding")
    assert (queue.active_message_count, queue.total_message_count, queue.dead_letter_message_count) == (2, 2, 0)
    assert (queue.scheduled_message_count, queue.transfer_message_count) == (0, 0)
    assert queue.size_in_bytes is not None
    assert queue.size_in_bytes > 0
    assert queue.created_at_utc is not None
    assert queue.accessed_at_utc is not None
    assert queue.accessed_at_utc >= queue.created_at_utc
    client.create_queue("unused")
    unused = client.get_queue_runtime_properties("unused").accessed_at_utc
    assert unused is not None
    assert unused.year == 1
    subscription = client.get_subscription_runtime_properties("telling", "all")
    assert (subscription.active_message_count, subscription.total_message_count) == (1, 1)
    listed = {each.name: each.total_message_count for each in client.list_queues_runtime_properties()}
    assert listed["holding"] == 2
    (each,) = client.list_subscriptions_runtime_properties("telling")
    assert (each.name, each.active_message_count) == ("all", 1)


def test_forwarding_is_set_and_removed(client: ServiceBusAdministrationClient, service: Service) -> None:
    client.create_queue("target")
    made = client.create_queue("source", forward_to="target", forward_dead_lettered_messages_to="target")
    assert made.forward_to == f"sb://{service.host}/target"
    client.update_queue(made, max_delivery_count=3)
    assert service.broker.catalogue.queue("source").forward_to == "target"
    made.forward_to = None
    client.update_queue(made)
    queue = service.broker.catalogue.queue("source")
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to) == (None, "target")
    with pytest.raises(HttpResponseError, match="destination entity 'missing' does not exist"):
        client.create_queue("other", forward_to="missing")


def test_authorization_rules_within_a_description(client: ServiceBusAdministrationClient, service: Service) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Manage", "Listen", "Send"],
        key_name="mine",
        primary_key="a-primary-key-of-my-own",
        secondary_key="a-secondary-key-too",
    )
    made = client.create_queue("guarded", authorization_rules=[rule])
    assert made.authorization_rules is not None
    (found,) = made.authorization_rules
    assert (found.key_name, found.primary_key, found.secondary_key) == (
        "mine",
        "a-primary-key-of-my-own",
        "a-secondary-key-too",
    )
    assert found.rights == ["Manage", "Listen", "Send"]
    made_rules = client.get_queue("guarded").authorization_rules or []
    assert made_rules[0].rights == ["Manage", "Listen", "Send"]
    client.update_queue(made, max_delivery_count=3)
    assert len(client.get_queue("guarded").authorization_rules or ()) == 1
    client.update_queue(made, authorization_rules=[])
    assert client.get_queue("guarded").authorization_rules is None


def test_errors_of_the_client(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("once", requires_duplicate_detection=True)
    with pytest.raises(ResourceExistsError, match="The messaging entity 'once' already exists"):
        client.create_queue("once")
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue("never")
    with pytest.raises(HttpResponseError) as refused:
        client.create_queue("never", duplicate_detection_history_time_window=timedelta(days=25))
    assert without_tracking(refused.value.message) == (
        "SubCode=40000. The value supplied must be between 00:00:20 and 7.00:00:00.\n"
        "Parameter name: DuplicateDetectionHistoryTimeWindow\nActual value was 25.00:00:00."
    )
    with pytest.raises(
        HttpResponseError, match="RequiresDuplicateDetection property of an existing Queue cannot be changed"
    ):
        client.update_queue(client.get_queue("once"), requires_duplicate_detection=False)


@pytest.mark.parametrize("api_version", ["2017-04", "2021-05", "2024-05"])
def test_each_version_of_the_protocol(service: Service, api_version: str) -> None:
    with administration(service, api_version=api_version) as client:
        made = client.create_queue(f"version-{api_version}")
        assert made.max_message_size_in_kilobytes == (None if api_version == "2017-04" else 256)
        client.update_queue(made, max_delivery_count=4)
        assert client.get_queue(made.name).max_delivery_count == 4


def test_an_unknown_version_is_rejected(service: Service) -> None:
    with (
        administration(service, api_version="2013-07") as client,
        pytest.raises(HttpResponseError, match="The api-version '2013-07' is not supported"),
    ):
        client.get_queue("any")


def test_a_key_without_the_right_to_manage(service: Service) -> None:
    rule = service.keys.add("reader", [Right.LISTEN])
    with administration(service, rule) as client, pytest.raises(ClientAuthenticationError, match="Manage,EntityRead"):
        list(client.list_queues())
    service.keys.remove("reader")
    with administration(service, rule) as client, pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
        list(client.list_queues())


def test_a_client_that_does_not_trust_the_certificate_does_not_connect(service: Service) -> None:
    text = f"Endpoint=sb://{service.host}/;SharedAccessKeyName=x;SharedAccessKey=y"
    with (
        ServiceBusAdministrationClient.from_connection_string(text, retry_total=0) as client,
        pytest.raises(ServiceRequestError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get_namespace_properties()


def test_the_tier_decides_about_large_messages(premium: ServiceBusAdministrationClient) -> None:
    made = premium.create_topic("large", max_message_size_in_kilobytes=102400)
    assert made.max_message_size_in_kilobytes == 102400
    assert premium.create_queue("usual").max_message_size_in_kilobytes == 1024
    with pytest.raises(HttpResponseError, match="EnablePartitioning"):
        premium.create_queue("parts", enable_partitioning=True)
    assert premium.get_namespace_properties().messaging_units == 1
