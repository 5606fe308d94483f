"""The client of azure-mgmt-servicebus, unmodified, against a broker behind TLS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.mgmt.servicebus import ServiceBusManagementClient
from azure.mgmt.servicebus.models import (
    Action,
    CheckNameAvailability,
    CorrelationFilter,
    RegenerateAccessKeyParameters,
    Rule,
    Ruleproperties,
    SBAuthorizationRule,
    SBAuthorizationRuleProperties,
    SBNamespace,
    SBNamespaceUpdateParameters,
    SBQueue,
    SBQueueProperties,
    SBSku,
    SBSubscription,
    SBSubscriptionProperties,
    SBTopic,
    SBTopicProperties,
    SqlFilter,
)

from oncebus.model.access import Right, WhichKey
from oncebus.model.entities import Tier
from tests.protocols.arm.management import SUBSCRIPTION, management
from tests.protocols.atom.served import Service, served

GROUP, NAME = "group", "oncebus"
NAMESPACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.ServiceBus/namespaces/{NAME}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a broker that the tests share. Each test has entities of its own."""
    with served(tmp_path_factory.mktemp("resources")) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[ServiceBusManagementClient]:
    """Return the official client with the root key."""
    with management(service) as connected:
        yield connected


def test_the_namespace_and_its_tier(client: ServiceBusManagementClient, service: Service) -> None:
    assert [each.name for each in client.namespaces.list()] == [NAME]
    assert [each.id for each in client.namespaces.list_by_resource_group(GROUP)] == [NAMESPACE]
    premium = SBNamespace(location="westeurope", sku=SBSku(name="Premium", tier="Premium", capacity=1))
    made = client.namespaces.begin_create_or_update(GROUP, NAME, premium).result()
    assert made.sku is not None
    assert (made.sku.name, service.broker.catalogue.namespace.tier) == ("Premium", Tier.PREMIUM)
    client.namespaces.update(GROUP, NAME, SBNamespaceUpdateParameters(sku=SBSku(name="Standard")))
    found = client.namespaces.get(GROUP, NAME)
    assert found.sku is not None
    assert found.properties is not None
    assert (found.sku.name, found.properties.service_bus_endpoint) == ("Standard", f"https://{service.host}/")
    with pytest.raises(ResourceExistsError, match="The namespace 'other' cannot be created"):
        client.namespaces.begin_create_or_update(GROUP, "other", premium).result()
    with pytest.raises(HttpResponseError, match="cannot be deleted"):
        client.namespaces.begin_delete(GROUP, NAME).result()
    answer = client.namespaces.check_name_availability(CheckNameAvailability(name=NAME))
    assert (answer.name_available, answer.reason) == (False, "NameInUse")


def test_a_queue_from_creation_to_deletion(client: ServiceBusManagementClient, service: Service) -> None:
    wanted = SBQueueProperties(
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(days=7),
        lock_duration=timedelta(seconds=13),
        max_delivery_count=14,
        user_metadata="größer",
    )
    made = client.queues.create_or_update(GROUP, NAME, "life/of/a-queue", SBQueue(properties=wanted))
    assert (made.name, made.id) == ("life/of/a-queue", f"{NAMESPACE}/queues/life~of~a-queue")
    found = client.queues.get(GROUP, NAME, "life/of/a-queue")
    assert found.properties is not None
    assert found.properties.duplicate_detection_history_time_window == timedelta(days=7)
    assert (found.properties.lock_duration, found.properties.max_delivery_count) == (timedelta(seconds=13), 14)
    assert found.properties.count_details is not None
    assert found.properties.count_details.active_message_count == 0
    assert found.properties.user_metadata == "größer"
    # Sending back what was read changes nothing.
    client.queues.create_or_update(GROUP, NAME, "life~of~a-queue", found)
    again = client.queues.get(GROUP, NAME, "life/of/a-queue")
    assert again.properties is not None
    assert again.properties.auto_delete_on_idle == found.properties.auto_delete_on_idle
    assert again.properties.duplicate_detection_history_time_window == timedelta(days=7)
    with pytest.raises(
        HttpResponseError, match="RequiresDuplicateDetection property of an existing Queue cannot be changed"
    ):
        client.queues.create_or_update(
            GROUP,
            NAME,
            "life/of/a-queue",
            SBQueue(properties=SBQueueProperties(requires_duplicate_detection=False)),
        )
    client.queues.delete(GROUP, NAME, "life/of/a-queue")
    client.queues.delete(GROUP, NAME, "life/of/a-queue")
    with pytest.raises(ResourceNotFoundError, match="The messaging entity 'life/of/a-queue' could not be found"):
        client.queues.get(GROUP, NAME, "life/of/a-queue")


def test_lists_in_pages(client: ServiceBusManagementClient) -> None:
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        client.queues.create_or_update(GROUP, NAME, name, SBQueue(properties=SBQueueProperties()))
    found = [queue.name for queue in client.queues.list_by_namespace(GROUP, NAME, top=2)]
    assert [name for name in found if name in names] == names


def test_topics_subscriptions_and_rules(client: ServiceBusManagementClient, service: Service) -> None:
    topic = SBTopic(properties=SBTopicProperties(requires_duplicate_detection=True))
    client.topics.create_or_update(GROUP, NAME, "t/news", topic)
    wanted = SBSubscription(
        properties=SBSubscriptionProperties(max_delivery_count=3, lock_duration=timedelta(seconds=5))
    )
    made = client.subscriptions.create_or_update(GROUP, NAME, "t/news", "all", wanted)
    assert made.properties is not None
    assert (made.properties.max_delivery_count, made.properties.lock_duration) == (3, timedelta(seconds=5))
    client.subscriptions.create_or_update(GROUP, NAME, "t/news", "all", made)
    sql = Ruleproperties(sql_filter=SqlFilter(sql_expression="a = 1"), action=Action(sql_expression="SET b = 2"))
    client.rules.create_or_update(GROUP, NAME, "t/news", "all", "sql", Rule(properties=sql))
    one = Ruleproperties(
        filter_type="CorrelationFilter", correlation_filter=CorrelationFilter(label="x", properties={"a": "b"})
    )
    rule = client.rules.create_or_update(GROUP, NAME, "t/news", "all", "one", Rule(properties=one))
    assert rule.properties is not None
    assert rule.properties.correlation_filter is not None
    assert (rule.properties.correlation_filter.label, rule.properties.correlation_filter.properties) == (
        "x",
        {"a": "b"},
    )
    listed = [each.name for each in client.rules.list_by_subscriptions(GROUP, NAME, "t/news", "all")]
    assert listed == ["$Default", "sql", "one"]
    client.rules.delete(GROUP, NAME, "t/news", "all", "$Default")
    assert [each.name for each in service.broker.catalogue.subscription("t/news", "all").rules] == ["sql", "one"]
    assert [each.name for each in client.subscriptions.list_by_topic(GROUP, NAME, "t/news")] == ["all"]
    found = client.topics.get(GROUP, NAME, "t/news")
    assert found.properties is not None
    assert found.properties.subscription_count == 1
    client.subscriptions.delete(GROUP, NAME, "t/news", "all")
    client.topics.delete(GROUP, NAME, "t/news")
    assert service.broker.catalogue.find("t/news") is None


def rights(*names: str) -> SBAuthorizationRule:
    return SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=list(names)))


def test_the_namespaces_rules_and_keys(client: ServiceBusManagementClient, service: Service) -> None:
    client.namespaces.create_or_update_authorization_rule(GROUP, NAME, "robot", rights("Send"))
    assert service.keys.rule("robot").rights == {Right.SEND}
    keys = client.namespaces.list_keys(GROUP, NAME, "robot")
    assert keys.primary_key == service.keys.rule("robot").primary_key
    assert keys.primary_connection_string == (
        f"Endpoint=sb://localhost/;SharedAccessKeyName=robot;SharedAccessKey={keys.primary_key}"
    )
    # Other rights keep the keys; then a given key, then a random one.
    client.namespaces.create_or_update_authorization_rule(GROUP, NAME, "robot", rights("Listen"))
    rule = service.keys.rule("robot")
    assert (rule.rights, rule.primary_key) == (frozenset({Right.LISTEN}), keys.primary_key)
    chosen = RegenerateAccessKeyParameters(key_type="SecondaryKey", key="chosen-by-myself")
    assert client.namespaces.regenerate_keys(GROUP, NAME, "robot", chosen).secondary_key == "chosen-by-myself"
    fresh = client.namespaces.regenerate_keys(
        GROUP, NAME, "robot", RegenerateAccessKeyParameters(key_type="PrimaryKey")
    )
    assert fresh.primary_key not in (None, keys.primary_key)
    assert service.keys.rule("robot").key(WhichKey.PRIMARY) == fresh.primary_key
    names = [each.name for each in client.namespaces.list_authorization_rules(GROUP, NAME)]
    assert names == ["RootManageSharedAccessKey", "robot"]
    client.namespaces.delete_authorization_rule(GROUP, NAME, "robot")
    client.namespaces.delete_authorization_rule(GROUP, NAME, "robot")
    with pytest.raises(ResourceNotFoundError):
        client.namespaces.list_keys(GROUP, NAME, "robot")


def test_the_last_rule_with_manage_cannot_be_removed(client: ServiceBusManagementClient, service: Service) -> None:
    root = service.root.name
    with pytest.raises(ResourceExistsError, match="is the last one with Manage"):
        client.namespaces.delete_authorization_rule(GROUP, NAME, root)
    with pytest.raises(ResourceExistsError, match="is the last one with Manage"):
        client.namespaces.create_or_update_authorization_rule(GROUP, NAME, root, rights("Send"))
    with pytest.raises(HttpResponseError, match="must be 1 to 50 letters"):
        client.namespaces.create_or_update_authorization_rule(GROUP, NAME, "-", rights("Send"))
    for number in range(11):
        client.namespaces.create_or_update_authorization_rule(GROUP, NAME, f"rule{number}", rights("Send"))
    with pytest.raises(ResourceExistsError, match="The namespace already has 12 authorization rules"):
        client.namespaces.create_or_update_authorization_rule(GROUP, NAME, "more", rights("Send"))
    for number in range(11):
        client.namespaces.delete_authorization_rule(GROUP, NAME, f"rule{number}")


def test_an_entitys_rules_and_keys(client: ServiceBusManagementClient, service: Service) -> None:
    client.queues.create_or_update(GROUP, NAME, "guarded", SBQueue(properties=SBQueueProperties()))
    client.queues.create_or_update_authorization_rule(
        GROUP, NAME, "guarded", "mine", rights("Manage", "Send", "Listen")
    )
    keys = client.queues.list_keys(GROUP, NAME, "guarded", "mine")
    assert keys.primary_connection_string is not None
    assert keys.primary_connection_string.endswith(";EntityPath=guarded")
    (rule,) = service.broker.catalogue.queue("guarded").authorization_rules
    assert (rule.name, rule.primary_key) == ("mine", keys.primary_key)
    assert [each.name for each in client.queues.list_authorization_rules(GROUP, NAME, "guarded")] == ["mine"]
    client.queues.delete_authorization_rule(GROUP, NAME, "guarded", "mine")
    assert service.broker.catalogue.queue("guarded").authorization_rules == ()


def test_a_key_without_the_right_to_manage(client: ServiceBusManagementClient, service: Service) -> None:
    rule = service.keys.add("sender", [Right.SEND])
    with management(service, rule) as other, pytest.raises(HttpResponseError) as refused:
        other.queues.create_or_update(GROUP, NAME, "no", SBQueue(properties=SBQueueProperties()))
    assert refused.value.error is not None
    assert (refused.value.status_code, refused.value.error.code) == (403, "AuthorizationFailed")
    service.keys.remove("sender")
    with management(service, rule) as other, pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
        other.namespaces.get(GROUP, NAME)
