"""All problems of a template are reported, each with its place."""

from __future__ import annotations

from typing import Any

import pytest

from oncebus.model.entities import Catalogue, Namespace, Tier, Topic

from .template_scenes import TYPE, deployed, problems, queue, resource, rule, subscription, template, topic

BUS = {"type": TYPE, "name": "bus", "apiVersion": "2024-01-01"}


def test_every_error_is_reported_with_its_place_and_nothing_changes() -> None:
    content = template(
        queue("orders", lockDuration="PT10M", maxDeliveryCount=0, duplicateDetectionHistoryTimeWindow="P25D", colour=1),
        queue("bad name!", maxSizeInMegabytes=77),
        topic("news", status="[bogus()]", requiresDuplicateDetection="perhaps", maxSizeInMegabytes=5),
        subscription("news/all", forwardTo="nowhere", lockDuration="soon"),
        rule("news/all/red", sqlFilter={"sqlExpression": "a ="}, action={"sqlExpression": "DROP TABLE"}),
        subscription("nothing/all"),
        resource("queues/authorizationRules", "orders/send", {"rights": ["Dance"]}),
        queue("stray") | {"lockDuration": "PT1M"},
        parameters={"size": {"type": "int"}},
    )
    found = problems(content)
    assert set(found) == {
        "parameters.size",
        "resources[0].properties.lockDuration",
        "resources[0].properties.maxDeliveryCount",
        "resources[0].properties.duplicateDetectionHistoryTimeWindow",
        "resources[0].properties.colour",
        "resources[1]",
        "resources[1].properties.maxSizeInMegabytes",
        "resources[2].properties.status",
        "resources[2].properties.requiresDuplicateDetection",
        "resources[2].properties.maxSizeInMegabytes",
        "resources[3].properties.forwardTo",
        "resources[3].properties.lockDuration",
        "resources[4].properties.sqlFilter.sqlExpression",
        "resources[4].properties.action.sqlExpression",
        "resources[5]",
        "resources[6].properties",
        "resources[7]",
    }
    assert "'bad name!' contains character(s)" in found["resources[1]"]
    assert "Actual value was 25.00:00:00." in found["resources[0].properties.duplicateDetectionHistoryTimeWindow"]
    assert "'nowhere' does not exist" in found["resources[3].properties.forwardTo"]
    assert "belong below 'properties'" in found["resources[7]"]
    assert not any("\n" in text for text in found.values())


def test_resources_hidden_by_a_missing_parameter_are_not_reported_as_missing() -> None:
    """The topic has no name, so its subscription cannot be found; the rest is still checked."""
    content = template(
        topic("x", maxSizeInMegabytes=5) | {"name": "[format('bus/{0}', parameters('topic'))]"},
        subscription("x/all", forwardTo="later", lockDuration="PT9M")
        | {"name": "[format('bus/{0}/all', parameters('topic'))]", "dependsOn": ["[parameters('topic')]"]},
        queue("a", forwardTo="b"),
        rule("news/all/r", sqlFilter={"sqlExpression": "a ="}),
        parameters={"topic": {"type": "string"}},
    )
    assert set(problems(content)) == {
        "parameters.topic",
        "resources[0].properties.maxSizeInMegabytes",
        "resources[1].properties.lockDuration",
        "resources[3].properties.sqlFilter.sqlExpression",
    }


def test_properties_that_conflict_are_reported_for_the_entity() -> None:
    found = problems(template(queue("a", enableExpress=True, requiresDuplicateDetection=True)))
    (text,) = found.values()
    assert "cannot be enabled together" in text


def test_fixed_properties_are_reported_with_their_place() -> None:
    before = deployed(template(queue("a"), topic("t"), subscription("t/s")))
    content = template(
        queue("a", requiresSession=True, enablePartitioning=True, lockDuration="PT9M"),
        topic("t", requiresDuplicateDetection=True),
        subscription("t/s", requiresSession=True),
    )
    assert problems(content, before) == {
        "resources[0].properties.requiresSession": "The value for the RequiresSession property of an existing Queue"
        " cannot be changed.",
        "resources[0].properties.enablePartitioning": "Partitioning cannot be changed for Queue.",
        "resources[0].properties.lockDuration": "The supplied lock time exceeds the allowed maximum of '5' minutes.",
        "resources[1].properties.requiresDuplicateDetection": "The value for the RequiresDuplicateDetection property of"
        " an existing Topic cannot be changed.",
        "resources[2].properties.requiresSession": "The value for the RequiresSession property of an existing"
        " Subscription cannot be changed.",
    }


def test_a_name_that_another_entity_has_is_an_error() -> None:
    before = Catalogue().create(Topic(name="news"), 5)
    assert problems(template(queue("news")), before) == {"resources[0]": "The messaging entity 'news' already exists."}


def test_what_a_tier_does_not_allow_is_reported() -> None:
    basic = Catalogue(namespace=Namespace(tier=Tier.BASIC))
    found = problems(template(queue("a", requiresSession=True), topic("t"), subscription("t/s")), basic)
    assert "'RequiresSession' cannot be set" in found["resources[0].properties.requiresSession"]
    assert found["resources[1]"].startswith("Cannot operate on type Topic")
    assert set(found) == {"resources[0].properties.requiresSession", "resources[1]"}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"properties": {"colour": "red"}}, "The property 'colour' is not known."),
        ({"sku": {"name": "Gold"}}, "The sku has the name 'gold'. Not one of Basic, Standard, Premium."),
        ({"tier": "Standard"}, "The member 'tier' is not known."),
    ],
)
def test_an_invalid_namespace_is_reported(members: dict[str, Any], said: str) -> None:
    (text,) = problems(template(BUS | members)).values()
    assert said.lower() in text.lower()
