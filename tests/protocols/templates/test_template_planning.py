"""The effect of a template on a namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import (
    Catalogue,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    TrueFilter,
)
from oncebus.protocols.management.difference import changes_of
from oncebus.values.durations import HOUR, MINUTE

from .template_scenes import (
    NOW,
    ROOT,
    TYPE,
    changes_nothing,
    deployed,
    effects,
    planned,
    problems,
    queue,
    resource,
    rule,
    subscription,
    template,
    topic,
)

BUS = {"type": TYPE, "name": "bus", "apiVersion": "2024-01-01"}


def rules_of(catalogue: Catalogue, path: str = "news/Subscriptions/all") -> dict[str, Any]:
    found = catalogue.find(path)
    assert isinstance(found, Subscription)
    return {each.name: (each.filter, each.action) for each in found.rules}


def test_entities_have_the_properties_of_the_template_or_the_defaults() -> None:
    content = template(
        queue(
            "orders",
            requiresDuplicateDetection=True,
            duplicateDetectionHistoryTimeWindow="PT1H",
            LOCKDURATION="00:02:00",
            status="receiveDisabled",
            forwardTo=None,
            deadLetteringOnMessageExpiration=True,
        ),
        topic("news", enablePartitioning=True),
        subscription("news/all", maxDeliveryCount=5),
    )
    made = deployed(content)
    assert made.queue("orders") == Queue(
        name="orders",
        id=1,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=HOUR,
        lock_duration=2 * MINUTE,
        status=EntityStatus.RECEIVE_DISABLED,
        dead_lettering_on_message_expiration=True,
        max_message_size_in_kilobytes=256,
        created_at=NOW,
        updated_at=NOW,
    )
    assert made.topic("news").max_size_in_megabytes == 16384
    assert made.subscription("news", "all").max_delivery_count == 5
    assert rules_of(made) == {"$Default": (TrueFilter(), None)}
    assert made.version == 1


def test_numbers_and_truth_values_may_be_written_as_texts() -> None:
    properties = {"maxSizeInMegabytes": "2048", "requiresSession": "true", "enablePartitioning": "False"}
    made = deployed(template(queue("orders", **properties, maxDeliveryCount="[string(7)]"))).queue("orders")
    assert (made.max_size_in_megabytes, made.requires_session, made.max_delivery_count) == (2048, True, 7)


def test_deployed_again_nothing_changes() -> None:
    content = template(
        BUS | {"sku": {"name": "Standard"}},
        queue("orders", enablePartitioning=True, maxSizeInMegabytes=2048, forwardTo="news"),
        topic("news", requiresDuplicateDetection=True),
        subscription("news/all", forwardDeadLetteredMessagesTo="orders"),
        rule("news/all/red", correlationFilter={"label": "red", "properties": {"size": 5}}),
        resource("queues/authorizationRules", "orders/send", {"rights": ["Send"]}),
        resource("authorizationRules", "everybody", {"rights": ["Listen", "Send"]}),
    )
    first = planned(content)
    assert set(effects(first).values()) == {"+", "="}
    again = planned(content, first.after, now=NOW + 1, rules=first.authorizations)
    assert changes_nothing(again)
    assert again.after is first.after
    assert set(effects(again).values()) == {"="}


def test_an_existing_entity_gets_the_given_properties_and_defaults() -> None:
    before = Catalogue().create(Queue(name="Orders", lock_duration=2 * MINUTE, max_delivery_count=3), 5)
    plan = planned(template(queue("orders", maxDeliveryCount=4)), before)
    changed = plan.after.queue("orders")
    assert (changed.id, changed.name, changed.created_at, changed.updated_at) == (1, "Orders", 5, NOW)
    assert (changed.max_delivery_count, changed.lock_duration) == (4, MINUTE)
    (change,) = changes_of(plan)
    assert change.before is not None
    assert change.after is not None
    assert {name for name, value in change.after.items() if change.before[name] != value} == {
        "maxDeliveryCount",
        "lockDuration",
    }
    assert change.before["lockDuration"] == "PT2M"


def test_resources_that_are_not_named_stay_as_they_are() -> None:
    before = Catalogue().create(Queue(name="other"), 5)
    assert deployed(template(queue("orders")), before).queue("other") == before.queue("other")


def test_entities_may_forward_to_each_other_in_any_order_and_in_circles() -> None:
    content = template(
        queue("a", forwardTo="b", forwardDeadLetteredMessagesTo="news"),
        queue("b", forwardTo="a"),
        subscription("news/all", forwardTo="a"),
        topic("news"),
    )
    content["resources"][2]["dependsOn"] = ["bus/news"]
    made = deployed(content)
    assert (made.queue("a").forward_to, made.queue("b").forward_to) == ("b", "a")
    assert changes_nothing(planned(content, made))


def test_rules_take_the_place_of_the_one_that_every_subscription_begins_with() -> None:
    red = rule("news/all/red", sqlFilter={"sqlExpression": "colour = 'red'"}, action={"sqlExpression": "SET a = 1"})
    made = deployed(template(topic("news"), subscription("news/all"), red))
    assert rules_of(made) == {"red": (SqlFilter("colour = 'red'"), SqlAction("SET a = 1"))}


def test_an_existing_subscription_loses_only_the_default_rule() -> None:
    before = deployed(template(topic("news"), subscription("news/all")))
    before = before.create_rule("news", "all", Rule("mine", SqlFilter("a = 1")), 5)
    plan = planned(template(rule("news/all/red", sqlFilter={"sqlExpression": "b = 1"})), before)
    assert list(rules_of(plan.after)) == ["mine", "red"]
    assert effects(plan) == {
        "topics/news/subscriptions/all/rules/red": "+",
        "topics/news/subscriptions/all/rules/$Default": "-",
    }


def test_the_default_rule_stays_if_it_is_named_or_was_changed() -> None:
    base = template(topic("news"), subscription("news/all"), rule("news/all/red", sqlFilter={"sqlExpression": "b = 1"}))
    named = template(*base["resources"], rule("news/all/$Default", sqlFilter={"sqlExpression": "1=0"}))
    assert rules_of(deployed(named)) == {"red": (SqlFilter("b = 1"), None), "$Default": (FalseFilter(), None)}
    changed = deployed(template(topic("news"), subscription("news/all")))
    changed = changed.update_rule("news", "all", Rule("$Default", SqlFilter("c = 1")))
    assert list(rules_of(deployed(base, changed))) == ["$Default", "red"]


def test_a_rule_is_changed_only_if_it_differs() -> None:
    content = template(
        topic("news"),
        subscription("news/all"),
        rule("news/all/red", filterType="CorrelationFilter", correlationFilter={"correlationId": "x"}, sqlFilter={}),
    )
    made = deployed(content)
    assert rules_of(made) == {"red": (CorrelationFilter(correlation_id="x"), None)}
    content["resources"][2]["properties"]["correlationFilter"]["correlationId"] = "y"
    plan = planned(content, made)
    assert rules_of(plan.after) == {"red": (CorrelationFilter(correlation_id="y"), None)}
    assert effects(plan)["topics/news/subscriptions/all/rules/red"] == "~"


def test_authorization_rules_get_keys_and_keep_them() -> None:
    send = resource("queues/authorizationRules", "orders/send", {"rights": ["Send"]})
    made = deployed(template(queue("orders"), send))
    (first,) = made.queue("orders").authorization_rules
    assert first.rights == {Right.SEND}
    assert first.primary_key
    send["properties"]["rights"] = ["Send", "Listen"]
    (second,) = deployed(template(queue("orders"), send), made).queue("orders").authorization_rules
    assert second == replace(first, rights=frozenset({Right.SEND, Right.LISTEN}))
    plain = template(queue("orders"))
    assert changes_nothing(planned(plain, made))


def test_rules_of_the_namespace_are_separate_from_the_catalogue() -> None:
    content = template(resource("authorizationRules", "reader", {"rights": ["Listen"]}))
    plan = planned(content)
    assert plan.after is plan.before
    assert not changes_nothing(plan)
    assert {each.name: each.rights for each in plan.changed_authorizations} == {"reader": frozenset({Right.LISTEN})}
    assert effects(plan) == {"authorizationRules/reader": "+"}
    text = "The authorization rules of the namespace cannot be changed here."
    assert problems(content, rules=None) == {"resources[0]": text}


def test_the_namespace_keeps_a_manager_and_a_limited_number_of_rules() -> None:
    demoted = template(resource("authorizationRules", ROOT.name, {"rights": ["Send"]}))
    assert "is the last one with Manage" in problems(demoted)["resources[0]"]
    many = [ROOT, *(replace(ROOT, name=f"r{at}") for at in range(11))]
    added = template(resource("authorizationRules", "more", {"rights": ["Send"]}))
    assert problems(added, rules=many)["resources[0]"].startswith("The namespace would have 13 authorization rules")


def test_the_tier_is_that_of_the_template_if_all_entities_are_allowed_there() -> None:
    premium = BUS | {"sku": {"name": "Premium", "tier": "Premium", "capacity": 1}}
    plan = planned(template(premium, queue("large", maxMessageSizeInKilobytes=2048)))
    assert plan.after.namespace.tier is Tier.PREMIUM
    assert plan.after.queue("large").max_message_size_in_kilobytes == 2048
    assert effects(plan) == {"": "~", "queues/large": "+"}
    partitioned = Catalogue().create(Queue(name="old", enable_partitioning=True), 5)
    found = problems(template(premium), partitioned)
    assert list(found) == ["resources[0].sku"]
    assert "'EnablePartitioning' cannot be set" in found["resources[0].sku"]


def test_a_tilde_in_a_name_stands_for_a_slash_unless_an_entity_has_it() -> None:
    before = Catalogue().create(Queue(name="x~y"), 5)
    content = template(
        queue("x~y"),
        topic("a~b"),
        subscription("a~b/all"),
        rule("a~b/all/r"),
        resource("topics/authorizationRules", "a~b/send", {"rights": ["Send"]}),
    )
    made = deployed(content, before)
    assert sorted(each.path for each in made.entities.values()) == ["a/b", "a/b/Subscriptions/all", "x~y"]
    assert [each.name for each in made.topic("a/b").authorization_rules] == ["send"]


def test_the_window_that_azure_writes_into_a_subscription_is_ignored_with_a_warning() -> None:
    content = template(
        topic("t"),
        subscription(
            "t/s",
            duplicateDetectionHistoryTimeWindow="P10675199DT2H48M5.4775807S",
            isClientAffine=False,
            countDetails={},
        ),
    )
    plan = planned(content)
    assert plan.after.subscription("t", "s")
    (warning,) = plan.wanted.warnings
    assert warning.startswith("resources[1].properties.duplicateDetectionHistoryTimeWindow: ")


def test_what_azure_exports_and_old_templates_say_is_understood() -> None:
    filter_of_old = {"filter": {"sqlExpression": "a = 1", "requiresPreprocessing": "false"}}
    content = template(
        BUS
        | {
            "kind": "Messaging",
            "location": "West Europe",
            "tags": {"team": "us"},
            "sku": {"name": "Standard", "tier": "Standard"},
            "properties": {
                "disableLocalAuth": True,
                "createACSNamespace": True,
                "encryption": None,
                "zoneRedundant": False,
                "minimumTlsVersion": "1.2",
                "premiumMessagingPartitions": 0,
                "geoDataReplication": {"maxReplicationLagDurationInSeconds": 0},
            },
        },
        topic("news", path="news", status="Active", supportOrdering="false") | {"location": "westeurope"},
        subscription(
            "news/all", path="all", isClientAffine=False, defaultMessageTimeToLive="P10675199DT2H48M5.4775807S"
        ),
        rule("news/all/old", **filter_of_old),
        resource("authorizationRules", ROOT.name, {"rights": ["Listen", "Manage", "Send"]}),
        resource("networkrulesets", "default", {"publicNetworkAccess": "Enabled"}),
    )
    plan = planned(content)
    assert rules_of(plan.after) == {"old": (SqlFilter("a = 1"), None)}
    assert not plan.changed_authorizations
    assert [warning.partition(": ")[0] for warning in plan.wanted.warnings] == [
        "resources[0].properties.disableLocalAuth",
        "resources[0].properties.createACSNamespace",
        "resources[5]",
    ]
    content["resources"][3]["properties"]["filter"]["sqlExpression"] = "a ="
    assert list(problems(content)) == ["resources[3].properties.filter.sqlExpression"]


def test_keys_are_in_no_difference() -> None:
    rules = (ROOT, AuthorizationRule("r", frozenset({Right.SEND}), "secret-one", "secret-two"))
    content = template(queue("a"), resource("queues/authorizationRules", "a/send", {"rights": ["Send"]}))
    plan = planned(content, rules=rules)
    (made,) = plan.after.queue("a").authorization_rules
    shown = repr(list(changes_of(plan)))
    assert made.primary_key not in shown
    assert "secret" not in shown
