"""Raw requests and responses for resources."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oncebus.model.entities import CorrelationFilter, FalseFilter, Rule, SqlFilter, Tier, TrueFilter
from tests.protocols.arm.resource_requests import NAMESPACE, SCOPE, VERSION, Manager, refusal
from tests.protocols.http.http_front import HOST, Front, scenario


def test_a_queue_is_a_resource(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        made = await manager.put("/queues/orders", requiresDuplicateDetection=True, lockDuration="PT30S")
        assert (made["id"], made["name"]) == (f"{NAMESPACE}/queues/orders", "orders")
        assert made["type"] == "Microsoft.ServiceBus/namespaces/queues"
        properties = made["properties"]
        assert properties["duplicateDetectionHistoryTimeWindow"] == "PT10M"
        assert properties["lockDuration"] == "PT30S"
        assert properties["defaultMessageTimeToLive"] == "P10675199DT2H48M5.4775807S"
        assert properties["createdAt"] == properties["updatedAt"] == "2026-09-21T14:13:20.000000Z"
        await front.send("orders", b"12345")
        properties = (await manager.get("/queues/orders"))["properties"]
        assert (properties["messageCount"], properties["countDetails"]["activeMessageCount"]) == (1, 1)
        assert properties["sizeInBytes"] > 5
        assert (await manager.ask("DELETE", "/queues/orders")).status == 200
        assert (await manager.ask("DELETE", "/queues/orders")).status == 204
        assert await manager.refused("GET", "/queues/orders") == (
            404,
            "ResourceNotFound",
            "SubCode=40400. The messaging entity 'orders' could not be found.",
        )

    scenario(tmp_path, play)


def test_a_property_left_out_gets_its_default_unless_it_is_fixed_at_creation(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        await front.queue(
            "orders",
            requires_duplicate_detection=True,
            requires_session=True,
            max_delivery_count=3,
            user_metadata="kept",
        )
        made = await manager.put("/queues/orders", duplicateDetectionHistoryTimeWindow="PT1H", UserMetaData=None)
        assert made["properties"]["duplicateDetectionHistoryTimeWindow"] == "PT1H"
        assert (made["properties"]["maxDeliveryCount"], made["properties"]["userMetadata"]) == (10, "kept")
        queue = front.broker.catalogue.queue("orders")
        assert (queue.requires_duplicate_detection, queue.requires_session) == (True, True)
        # A client may send back everything that it read.
        again = await manager.ask("PUT", "/queues/orders", made)
        assert again.json["properties"]["duplicateDetectionHistoryTimeWindow"] == "PT1H"

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize("written", ["a%2Fb", "a/b", "a~b", "A%2FB"])
def test_a_name_with_slashes_may_be_written_in_several_ways(tmp_path: Path, written: str) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        made = await manager.put(f"/queues/{written}")
        assert made["name"] == written.replace("%2F", "/").replace("~", "/")
        assert made["id"].lower() == f"{NAMESPACE}/queues/a~b".lower()
        assert (await manager.get(made["id"].removeprefix(NAMESPACE)))["name"] == made["name"]
        await manager.put(f"/queues/{written}/authorizationRules/x", rights=["Send"])
        assert (await manager.get(f"/queues/{written}/authorizationRules"))["value"][0]["name"] == "x"
        await manager.ask("DELETE", f"/queues/{written}")
        await manager.put(f"/topics/{written}")
        await manager.put(f"/topics/{written}/subscriptions/s")
        assert [each.name for each in front.broker.catalogue.subscriptions_of("a/b")] == ["s"]

    scenario(tmp_path, play, pipeline=False)


def test_an_entity_that_has_a_tilde_in_its_name_is_found_by_it(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("a~b")
        await front.queue("a/b")
        assert (await Manager(front).get("/queues/a~b"))["name"] == "a~b"
        assert (await Manager(front).get("/queues/a%2Fb"))["name"] == "a/b"

    scenario(tmp_path, play, pipeline=False)


def test_lists_come_in_pages(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        for name in ("c", "a", "e", "b", "d"):
            await front.queue(name)
        await front.topic("news", "one", "two")
        page = await manager.get("/queues", f"{VERSION}&$top=2")
        names = [each["name"] for each in page["value"]]
        while "nextLink" in page:
            following = urlsplit(page["nextLink"])
            assert following.netloc == HOST
            page = (await front.ask("GET", following.path, query=following.query)).json
            names += [each["name"] for each in page["value"]]
        assert names == ["a", "b", "c", "d", "e"]
        assert [each["name"] for each in (await manager.get("/topics"))["value"]] == ["news"]
        assert [each["name"] for each in (await manager.get("/topics/news/subscriptions"))["value"]] == ["one", "two"]
        assert (await manager.refused("GET", "/topics/none/subscriptions"))[0] == 404
        assert (await manager.refused("GET", "/queues", query=f"{VERSION}&$top=0"))[0] == 400

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, TrueFilter()),
        ({"sqlFilter": {"sqlExpression": "1=1"}}, TrueFilter()),
        ({"sqlFilter": {"sqlExpression": "1=0"}}, FalseFilter()),
        ({"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a = 1"}}, SqlFilter("a = 1")),
        (
            {"filterType": "CorrelationFilter", "correlationFilter": {"label": "x", "properties": {"a": "b", "n": 5}}},
            CorrelationFilter(label="x", properties=(("a", "b"), ("n", 5))),
        ),
        ({"correlationFilter": {"sessionId": "s"}, "action": {}}, CorrelationFilter(session_id="s")),
    ],
)
def test_rules_are_resources_too(tmp_path: Path, properties: dict[str, object], expected: object) -> None:
    async def play(front: Front) -> None:
        manager, path = Manager(front), "/topics/news/subscriptions/all/rules"
        await front.topic("news", "all")
        made = await manager.put(f"{path}/mine", **properties)
        assert made["type"] == "Microsoft.ServiceBus/namespaces/topics/subscriptions/rules"
        assert made["id"] == f"{NAMESPACE}{path}/mine"
        found = front.broker.catalogue.rule("news", "all", "mine")
        assert found.filter == expected
        # Sending back what was read changes nothing.
        await manager.ask("PUT", f"{path}/mine", made)
        assert front.broker.catalogue.rule("news", "all", "mine") == found
        changed = await manager.put(f"{path}/mine", action={"sqlExpression": "SET a = 2"})
        assert changed["properties"]["action"]["sqlExpression"] == "SET a = 2"
        assert [each["name"] for each in (await manager.get(path))["value"]] == [Rule().name, "mine"]
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 200
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 204
        assert (await manager.refused("GET", f"{path}/mine"))[0] == 404

    scenario(tmp_path, play, pipeline=False)


def test_the_namespace_is_found_only_under_its_own_name(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        found = await manager.get("")
        assert (found["name"], found["sku"]) == ("oncebus", {"name": "Standard", "tier": "Standard"})
        assert found["properties"]["provisioningState"] == "Succeeded"
        assert found["properties"]["serviceBusEndpoint"] == f"http://{HOST}/"
        for path in (f"{SCOPE}/namespaces", "/subscriptions/s/providers/Microsoft.ServiceBus/namespaces"):
            (listed,) = (await front.ask("GET", path, query=VERSION)).json["value"]
            assert listed["name"] == "oncebus"
            assert (await front.ask("GET", listed["id"], query=VERSION)).json["id"] == listed["id"]
        other = f"{SCOPE}/namespaces/other"
        text = "This broker is the namespace 'oncebus'"
        for method, path, status in (("GET", other, 404), ("PUT", other, 409), ("PUT", f"{other}/queues/x", 404)):
            answer = refusal(await front.ask(method, path, b"{}", query=VERSION))
            assert answer[0] == status
            assert text in answer[2]
        assert front.broker.catalogue.entities == {}
        refused = await manager.refused("DELETE", "")
        assert refused[:2] == (405, "MethodNotAllowed")
        check = await front.ask(
            "POST",
            "/subscriptions/s/providers/Microsoft.ServiceBus/CheckNameAvailability",
            b'{"name": "x"}',
            query=VERSION,
        )
        assert check.json["nameAvailable"] is False

    scenario(tmp_path, play, pipeline=False)


def test_the_tier_changes_if_all_entities_are_allowed_there(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        await front.queue("orders")
        for method, sku, tier in (
            ("PUT", {"name": "Premium", "tier": "Premium", "capacity": 1}, Tier.PREMIUM),
            ("PATCH", {"name": "basic"}, Tier.BASIC),
            ("PUT", {"tier": "Standard"}, Tier.STANDARD),
        ):
            made = await manager.ask(method, "", {"location": "westeurope", "tags": {"a": "b"}, "sku": sku})
            assert (made.status, made.json["sku"]["tier"]) == (200, tier.value)
            assert front.broker.catalogue.namespace.tier is tier
        version = front.broker.catalogue.version
        assert (await manager.ask("PUT", "", {"location": "x", "properties": {"zoneRedundant": True}})).status == 200
        assert front.broker.catalogue.version == version
        await front.topic("news")
        status, code, message = await manager.refused("PUT", "", {"sku": {"name": "Basic"}})
        assert (status, code) == (400, "BadRequest")
        assert "Cannot operate on type Topic because the namespace 'oncebus' is using 'Basic' tier." in message
        for content, text in (
            ({"sku": {"name": "Gold"}}, "The sku has the name 'gold'. Not one of Basic, Standard, Premium."),
            ({"properties": {"disableLocalAuth": True}}, "'disableLocalAuth' has value True. It is not supported."),
            ({"properties": {"encryption": {"keySource": "x"}}}, "It is not supported."),
            ({"properties": {"size": 5}}, "The property 'size' is not known."),
        ):
            status, _, message = await manager.refused("PUT", "", content)
            assert status == 400
            assert text in message
        assert front.broker.catalogue.namespace.tier is Tier.STANDARD

    scenario(tmp_path, play, pipeline=False)


def test_the_window_of_a_subscription_is_its_topics(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager, path = Manager(front), "/topics/news/subscriptions/all"
        await front.topic("news", requires_duplicate_detection=True)
        made = await manager.put(path, duplicateDetectionHistoryTimeWindow="PT600S", isClientAffine=False)
        assert made["properties"]["duplicateDetectionHistoryTimeWindow"] == "PT10M"
        given = {"properties": {"duplicateDetectionHistoryTimeWindow": "PT1H"}}
        message = (await manager.refused("PUT", path, given))[2]
        assert "of a subscription is its topic's. Topic 'news' has 00:10:00.\nActual value was 01:00:00." in message
        for name in ("requiresDuplicateDetection", "isClientAffine"):
            assert (await manager.refused("PUT", path, {"properties": {name: True}}))[0] == 400

    scenario(tmp_path, play, pipeline=False)
