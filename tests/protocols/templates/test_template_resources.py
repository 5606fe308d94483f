"""Resources of a template: nesting, names, loops, conditions and order."""

from __future__ import annotations

from typing import Any

import pytest

from oncebus.model.entities import Catalogue

from .template_scenes import (
    TYPE,
    changes_nothing,
    deployed,
    planned,
    problems,
    queue,
    resource,
    subscription,
    template,
    topic,
)


def names(catalogue: Catalogue) -> list[str]:
    return sorted(entity.path for entity in catalogue.entities.values())


def nested(kind: str, name: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "apiVersion": "2024-01-01", **members}


def test_resources_may_be_nested_or_stand_alone() -> None:
    inner = nested("Subscriptions", "all", dependsOn=["news"], resources=[nested("Rules", "r", properties={})])
    whole = {
        "type": TYPE,
        "name": "bus",
        "apiVersion": "2024-01-01",
        "resources": [nested("topics", "news", resources=[inner]), nested("queues", "orders")],
    }
    assert names(deployed(template(whole, queue("a~b")))) == ["a/b", "news", "news/Subscriptions/all", "orders"]


def test_resources_may_have_symbolic_names() -> None:
    content: dict[str, Any] = template()
    content["languageVersion"] = "2.0"
    content["resources"] = {
        "bus": {"type": TYPE, "name": "bus", "existing": True, "apiVersion": "2024-01-01"},
        "second": resource("topics/subscriptions", "news/all", dependsOn=["first"]),
        "first": resource("topics", "news", dependsOn=["bus"]),
        "many": resource(
            "queues",
            "q",
            name="[format('bus/q{0}', copyIndex())]",
            copy={"name": "many", "count": 2},
            dependsOn=["bus"],
        ),
        "last": queue("last") | {"dependsOn": ["many[1]"]},
    }
    assert names(deployed(content)) == ["last", "news", "news/Subscriptions/all", "q0", "q1"]


def test_a_loop_makes_as_many_resources_as_its_count() -> None:
    looped = resource(
        "queues",
        "",
        properties={"maxDeliveryCount": "[add(copyIndex('q'), 5)]"},
        name="[concat('bus/', variables('names')[copyIndex()])]",
        copy={"name": "q", "count": "[length(variables('names'))]"},
    )
    made = deployed(template(looped, variables={"names": ["red", "green"]}))
    assert {each.name: each.max_delivery_count for each in made.queues} == {"red": 5, "green": 6}
    assert names(deployed(template(looped, variables={"names": []}))) == []


def test_fifty_entities_from_one_loop() -> None:
    looped = resource("queues", "", name="[format('bus/q{0:D2}', copyIndex(1))]", copy={"name": "q", "count": 50})
    made = planned(template(looped))
    assert names(made.after)[::49] == ["q01", "q50"]
    assert changes_nothing(planned(template(looped), made.after))


def test_a_condition_leaves_out_only_its_resource() -> None:
    parameters = {"isTest": {"type": "bool"}}
    content = template(
        topic("news"),
        queue("test", lockDuration="[parameters('absent')]") | {"condition": "[parameters('isTest')]"},
        queue("orders") | {"dependsOn": ["[resourceId('Microsoft.ServiceBus/namespaces/queues', 'bus', 'test')]"]},
        parameters=parameters,
    )
    assert names(deployed(content, isTest=False)) == ["news", "orders"]
    assert problems(content, isTest=True) == {
        "resources[1].properties.lockDuration": "The parameter 'absent' does not exist."
    }


def test_nested_resources_stay_when_their_owner_is_left_out() -> None:
    content = template(topic("news") | {"condition": False}, subscription("news/all"))
    assert problems(content) == {"resources[1]": "The messaging entity 'news' could not be found."}


@pytest.mark.parametrize(
    "dependency",
    [
        "[resourceId('Microsoft.ServiceBus/namespaces/topics', 'bus', 'news')]",
        "Microsoft.ServiceBus/namespaces/bus/topics/NEWS",
        "microsoft.servicebus/namespaces/topics/bus/news",
        "bus/news",
        "news",
        "loop",
    ],
)
def test_a_dependency_may_be_an_id_or_a_name_and_decides_the_order(dependency: str) -> None:
    first = topic("news") | {"copy": {"name": "loop", "count": 1}}
    content = template(subscription("news/all") | {"dependsOn": [dependency]}, first)
    plan = planned(content)
    assert [each.path for each in plan.wanted.entities] == ["news", "news/Subscriptions/all"]


def test_without_dependencies_the_order_is_that_of_the_file() -> None:
    content = template(queue("b"), queue("a"), queue("c") | {"dependsOn": ["d"]}, queue("d"))
    assert [each.name for each in planned(content).wanted.entities] == ["b", "a", "d", "c"]


def test_an_unknown_dependency_and_a_circle_are_reported() -> None:
    content = template(
        queue("a") | {"dependsOn": ["b"]},
        queue("b") | {"dependsOn": ["c"]},
        queue("c") | {"dependsOn": ["a"]},
        queue("behind") | {"dependsOn": ["a"]},
        queue("d") | {"dependsOn": ["nobody"]},
    )
    circle = {f"resources[{at}]": f"The resource 'bus/{name}' depends on itself." for at, name in enumerate("abc")}
    assert problems(content) == circle | {"resources[4].dependsOn[0]": "The resource 'nobody' is not in the template."}


@pytest.mark.parametrize(
    ("written", "path", "said"),
    [
        (5, "resources[0]", "A resource must be an object, not int."),
        ({"type": TYPE}, "resources[0]", "The resource has no 'name'."),
        ({"name": "bus"}, "resources[0]", "The resource has no 'type'."),
        ({"type": TYPE, "name": 5}, "resources[0].name", "The name of a resource must be a string, not 5."),
        (
            {"type": f"{TYPE}/queues", "name": "orders"},
            "resources[0].name",
            f"The name 'orders' has 1 parts, but the type '{TYPE}/queues' needs 2."
            " In the name of an entity, write ~ for a slash.",
        ),
        (
            {"type": f"{TYPE}/queues", "name": "bus/a/b"},
            "resources[0].name",
            f"The name 'bus/a/b' has 3 parts, but the type '{TYPE}/queues' needs 2."
            " In the name of an entity, write ~ for a slash.",
        ),
        (queue("a") | {"condition": "yes"}, "resources[0].condition", "A condition must be true or false, not 'yes'."),
        (queue("a") | {"copy": 5}, "resources[0].copy", "The loop of a resource must be an object, not int."),
        (
            queue("a") | {"copy": {"name": "c", "count": -1}},
            "resources[0].copy.count",
            "A copy loop makes 0 to 800 copies, not -1.",
        ),
        (
            queue("a") | {"dependsOn": "b"},
            "resources[0].dependsOn",
            "The member 'dependsOn' is string. Not an array.",
        ),
        (queue("a") | {"resources": 7}, "resources[0].resources", "The resources are int. Not an array or an object."),
        (
            {"type": TYPE, "name": "bus", "resources": [nested("queues", "a/b")]},
            "resources[0].resources[0].name",
            "The name 'a/b' of a nested resource contains a slash. Write ~ instead.",
        ),
        (
            {"type": f"{TYPE}/queue", "name": "bus/default"},
            "resources[0].type",
            f"The type '{TYPE}/queue' is unknown. Use one of namespaces, ",
        ),
        (
            {"type": "Microsoft.Resources/deployments", "name": "inner"},
            "resources[0].type",
            "A template within a template is not supported. Deploy the inner template on its own.",
        ),
    ],
)
def test_an_invalid_resource_is_reported_with_its_place(written: Any, path: str, said: str) -> None:
    found = problems(template(written))
    assert list(found) == [path]
    assert found[path].startswith(said)


def test_a_repeated_resource_is_reported() -> None:
    found = problems(template(queue("a"), queue("A"), topic("b")))
    assert found == {"resources[1].name": "The resource 'bus/A' is in the template twice: see resources[0]."}


def test_resources_of_several_namespaces_are_rejected() -> None:
    other = queue("b") | {"name": "other/b"}
    found = problems(template(queue("a"), other))
    assert found == {
        "resources": "The resources belong to several namespaces: bus, other. A broker is exactly one namespace."
    }


def test_resources_of_other_providers_are_left_out_with_a_warning() -> None:
    diagnostics = nested("providers/diagnosticSettings", "microsoft.insights/logs")
    content = template(
        {"type": "Microsoft.Storage/storageAccounts", "name": "files", "apiVersion": "2023-01-01"},
        {"type": TYPE, "name": "bus", "resources": [diagnostics, nested("queues", "a", dependsOn=["files"])]},
        {"type": f"{TYPE}/providers/locks", "name": "bus/Microsoft.Authorization/keep"},
        resource("networkRuleSets", "default", {"defaultAction": "Deny"}),
    )
    plan = planned(content)
    assert names(plan.after) == ["a"]
    assert [warning.partition(":")[0] for warning in plan.wanted.warnings] == [
        "resources[0]",
        "resources[1].resources[0]",
        "resources[2]",
        "resources[3]",
    ]
    assert (
        "'files' is left out: Microsoft.Storage/storageAccounts is not a resource of this broker."
        in plan.wanted.warnings[0]
    )


def test_the_number_of_resources_is_limited() -> None:
    looped = [
        resource("queues", "", name=f"[format('bus/{letter}{{0}}', copyIndex())]", copy={"name": letter, "count": 401})
        for letter in "ab"
    ]
    assert problems(template(*looped)) == {"resources": "There are more than 800 resources, including all copies."}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "The template is array. Not an object."),
        ({"parameters": {}}, "The template has no 'resources'."),
    ],
)
def test_other_content_than_a_template_is_rejected(content: Any, said: str) -> None:
    assert problems(content) == {"": said}


def test_sections_of_the_wrong_type_are_reported() -> None:
    found = problems({"parameters": [], "variables": 5, "resources": "none"})
    assert found == {
        "parameters": "The parameters are array. Not an object.",
        "variables": "The variables are int. Not an object.",
        "resources": "The resources are string. Not an array or an object.",
    }
