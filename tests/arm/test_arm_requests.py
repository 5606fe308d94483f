"""Resources as they stand on the wire."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from arm.resource_requests import NAMESPACE, SCOPE, VERSION, Manager, refusal
from httpfront.http_front import HOST, LISTENER, ROOT, SENDER, Answer, Front, scenario, token
from oncebus.access import AuthorizationRule, Right
from oncebus.entities import CorrelationFilter, FalseFilter, Rule, SqlFilter, Tier, TrueFilter


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


def test_what_is_not_named_gets_its_default_again_unless_it_was_chosen_at_creation(tmp_path: Path) -> None:
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
        # All that a client was told may come back.
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
        # What was told comes back as the same.
        await manager.ask("PUT", f"{path}/mine", made)
        assert front.broker.catalogue.rule("news", "all", "mine") == found
        changed = await manager.put(f"{path}/mine", action={"sqlExpression": "SET a = 2"})
        assert changed["properties"]["action"]["sqlExpression"] == "SET a = 2"
        assert [each["name"] for each in (await manager.get(path))["value"]] == [Rule().name, "mine"]
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 200
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 204
        assert (await manager.refused("GET", f"{path}/mine"))[0] == 404

    scenario(tmp_path, play, pipeline=False)


def test_the_namespace_is_found_under_its_own_name_alone(tmp_path: Path) -> None:
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


def test_the_tier_changes_where_all_stays_legal(tmp_path: Path) -> None:
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
            ({"sku": {"name": "Basic", "tier": "Premium"}}, "The name and the tier of the sku differ"),
            ({"properties": {"disableLocalAuth": True}}, "'disableLocalAuth' has value True. It is not supported."),
            ({"properties": {"encryption": {"keySource": "x"}}}, "It is not supported."),
            ({"properties": {"size": 5}}, "The property 'size' is not known."),
        ):
            status, _, message = await manager.refused("PUT", "", content)
            assert status == 400
            assert text in message
        assert front.broker.catalogue.namespace.tier is Tier.STANDARD

    scenario(tmp_path, play, pipeline=False)


def test_the_rules_of_an_entity_and_their_keys(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager, path = Manager(front), "/topics/news/authorizationRules"
        await front.topic("news", "all")
        made = await manager.put(f"{path}/mine", rights=["Send"])
        assert (made["id"], made["properties"]) == (f"{NAMESPACE}{path}/mine", {"rights": ["Send"]})
        assert "Key" not in str(made)
        first = (await manager.ask("POST", f"{path}/mine/listKeys")).json
        assert first["keyName"] == "mine"
        host = HOST.partition(":")[0]
        assert first["primaryConnectionString"] == (
            f"Endpoint=sb://{host};SharedAccessKeyName=mine;SharedAccessKey={first['primaryKey']};EntityPath=news;"
            "UseDevelopmentEmulator=true"
        )
        await manager.put(f"{path}/mine", rights=["Manage", "Send", "Listen"])
        again = (await manager.ask("POST", f"{path}/mine/ListKeys")).json
        assert again == first
        new = (await manager.ask("POST", f"{path}/mine/regenerateKeys", {"keyType": "PrimaryKey"})).json
        assert new["primaryKey"] != first["primaryKey"]
        assert new["secondaryKey"] == first["secondaryKey"]
        own = (
            await manager.ask("POST", f"{path}/mine/regenerateKeys", {"keyType": "secondarykey", "key": "mine"})
        ).json
        assert (own["primaryKey"], own["secondaryKey"]) == (new["primaryKey"], "mine")
        (rule,) = front.broker.catalogue.topic("news").authorization_rules
        assert (rule.primary_key, rule.secondary_key, len(rule.rights)) == (new["primaryKey"], "mine", 3)
        for content, text in (
            ({"keyType": "Third"}, "The property 'keyType' has value 'Third'. Not one of PrimaryKey, SecondaryKey."),
            ({"keyType": "PrimaryKey", "key": "a;b"}, "PrimaryKey of authorization rule 'mine' is not a key"),
            ({"keyType": "PrimaryKey", "key": 5}, "The property 'key' is not a text."),
        ):
            status, _, message = await manager.refused("POST", f"{path}/mine/regenerateKeys", content)
            assert status == 400
            assert text in message
        for rights, text in (
            ([], "has no rights."),
            ("Send", "The property 'rights' has value 'Send'. Not a list."),
            (["Own"], "The access right 'Own' is not one of Send, Listen, Manage."),
        ):
            status, _, message = await manager.refused("PUT", f"{path}/other", {"properties": {"rights": rights}})
            assert status == 400
            assert text in message
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 200
        assert (await manager.ask("DELETE", f"{path}/mine")).status == 204
        for method, tail in (("GET", ""), ("POST", "/listKeys"), ("POST", "/regenerateKeys")):
            refused = await manager.refused(method, f"{path}/mine{tail}", {"keyType": "PrimaryKey"})
            assert refused[:2] == (404, "ResourceNotFound")

    scenario(tmp_path, play, pipeline=False)


def test_without_the_key_file_the_namespaces_rules_are_only_shown(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        listed = (await manager.get("/AuthorizationRules"))["value"]
        assert [each["name"] for each in listed] == [ROOT.name, SENDER.name, LISTENER.name]
        shown = (await manager.ask("POST", f"/AuthorizationRules/{SENDER.name}/listKeys")).json
        assert shown["primaryKey"] == SENDER.primary_key
        refused = await manager.refused("PUT", "/authorizationRules/new", {"properties": {"rights": ["Send"]}})
        assert refused == (
            405,
            "MethodNotAllowed",
            "The authorization rules of the namespace 'oncebus' cannot be changed.",
        )

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "", "Manage"),
        ("PUT", "", "Manage"),
        ("GET", "/queues", "Manage"),
        ("GET", "/queues/orders", "Manage"),
        ("PUT", "/queues/new", "Manage"),
        ("DELETE", "/queues/orders", "Manage"),
        ("PUT", "/topics/news/subscriptions/all/rules/new", "Manage"),
        ("GET", "/topics/news/subscriptions/all/rules", "Listen"),
        ("GET", "/authorizationRules", "Manage"),
        ("POST", "/queues/orders/authorizationRules/x/listKeys", "Manage"),
        ("POST", f"/authorizationRules/{ROOT.name}/listKeys", "Manage"),
        ("POST", f"/authorizationRules/{ROOT.name}/regenerateKeys", "Manage"),
    ],
)
def test_each_operation_needs_its_right(tmp_path: Path, method: str, path: str, right: str) -> None:
    async def play(front: Front) -> None:
        own = AuthorizationRule("x", frozenset({Right.SEND}), "x-one", "x-two")
        await front.queue("orders", authorization_rules=(own,))
        await front.topic("news", "all")
        before = front.broker.catalogue
        for rule in (SENDER, LISTENER):
            answer = await Manager(front).ask(method, path, {}, token=f"Bearer {token(front.time, rule)}")
            if right in rule.rights:
                assert answer.status == 200
            else:
                assert refusal(answer)[:2] == (403, "AuthorizationFailed")
        for bad, text in ((None, "MissingToken"), ("Bearer x", "MalformedToken"), ("Bearer", "MalformedToken")):
            status, code, message = refusal(await Manager(front).ask(method, path, {}, token=bad))
            assert (status, code) == (401, "AuthenticationFailed")
            assert message.startswith(text)
        assert front.broker.catalogue is before

    scenario(tmp_path, play, pipeline=False)


def test_forwarding_needs_a_token_that_manages_the_target_too(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("orders")
        narrow = token(front.time, ROOT, "new")
        content = {"properties": {"forwardTo": "orders"}}
        refused = refusal(await Manager(front).ask("PUT", "/queues/new", content, token=narrow))
        assert refused[:2] == (403, "AuthorizationFailed")
        made = await Manager(front).put("/queues/new", forwardTo="orders")
        assert made["properties"]["forwardTo"] == "orders"
        # Not to name it takes it away.
        assert "forwardTo" not in (await Manager(front).put("/queues/new"))["properties"]

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


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"{", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"<a/>", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"\xff", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"[" * 100_000, "InvalidRequestContent", "The body of the request is not JSON: "),
        (b'{"properties": NaN}', "InvalidRequestContent", "The body of the request is not JSON: "),
        (
            b'{"properties": {"userMetadata": "\\ud800"}}',
            "InvalidRequestContent",
            "it holds what no text or number can be",
        ),
        (b"[]", "InvalidRequestContent", "The body of the request is []. Not an object."),
        (b'{"properties": 5}', "InvalidRequestContent", "The member 'properties' is 5. Not an object."),
        (b'{"lockDuration": "PT1M"}', "BadRequest", "The member 'lockDuration' is not known. What describes an entity"),
        (b'{"properties": {"lockDuraton": "PT1M"}}', "BadRequest", "The property 'lockDuraton' is not known."),
        (
            b'{"properties": {"lockDuration": 60}}',
            "BadRequest",
            "The property 'lockDuration' has value 60. Not a duration.",
        ),
        (
            b'{"properties": {"requiresSession": "true"}}',
            "BadRequest",
            "'requiresSession' has value 'true'. Not true or false.",
        ),
        (
            b'{"properties": {"maxDeliveryCount": true}}',
            "BadRequest",
            "'maxDeliveryCount' has value True. Not a whole number.",
        ),
        (
            b'{"properties": {"maxDeliveryCount": 1.5}}',
            "BadRequest",
            "'maxDeliveryCount' has value 1.5. Not a whole number.",
        ),
        (b'{"properties": {"forwardTo": ["a"]}}', "BadRequest", "'forwardTo' has value ['a']. Not a text."),
        (
            b'{"properties": {"status": "x", "Status": "y"}}',
            "BadRequest",
            "The property 'Status' is given more than once.",
        ),
    ],
)
def test_bodies_that_describe_nothing_are_refused_with_the_reason(
    tmp_path: Path, body: bytes, code: str, text: str
) -> None:
    async def play(front: Front) -> None:
        answer = refusal(await front.ask("PUT", f"{NAMESPACE}/queues/thing", body, query=VERSION))
        assert answer[:2] == (400, code)
        assert text in answer[2]
        assert front.broker.catalogue.entities == {}

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"filterType": "OtherFilter"}, "The property 'filterType' has value 'OtherFilter'."),
        ({"sqlFilter": {}, "correlationFilter": {}}, "A rule has a 'sqlFilter' or a 'correlationFilter', not both."),
        ({"sqlFilter": {"sqlExpression": "a = "}}, "The filter cannot be read"),
        ({"sqlFilter": {"sqlExpression": 5}}, "The property 'sqlExpression' has value 5. Not a text."),
        ({"sqlFilter": {"sql": "a = 1"}}, "The property 'sql' is not known."),
        ({"sqlFilter": {"compatibilityLevel": "20"}}, "'compatibilityLevel' has value '20'. Not a whole number."),
        ({"action": {"requiresPreprocessing": 1}}, "'requiresPreprocessing' has value 1. Not true or false."),
        ({"correlationFilter": {"properties": []}}, "The property 'properties' is []. Not an object."),
        ({"correlationFilter": {"properties": {"a": [1]}}}, "The value of 'a' is [1]. Not a text, a number,"),
        ({"correlationFilter": {"properties": {"a": 10**30}}}, "The value of 'a' is 1000000000000000000000000000000."),
        ({"correlationFilter": {"label": 5}}, "The property 'Label' has value 5. Not a text."),
    ],
)
def test_rules_that_cannot_be(tmp_path: Path, properties: dict[str, object], text: str) -> None:
    async def play(front: Front) -> None:
        await front.topic("news", "all")
        path = "/topics/news/subscriptions/all/rules/mine"
        status, _, message = await Manager(front).refused("PUT", path, {"properties": properties})
        assert status == 400
        assert text in message

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MissingApiVersionParameter"),
        ("api-version=", "MissingApiVersionParameter"),
        ("api-version=2021-05", "InvalidApiVersionParameter"),
        ("api-version=latest", "InvalidApiVersionParameter"),
    ],
)
def test_a_version_must_be_named(tmp_path: Path, query: str, code: str) -> None:
    async def play(front: Front) -> None:
        assert (await Manager(front).refused("GET", "", query=query))[:2] == (400, code)
        for version in ("2026-01-01", "2024-01-01", "2022-01-01-preview", "2017-04-01"):
            assert (await Manager(front).ask("GET", "", query=f"API-Version={version}")).status == 200

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    "path",
    [
        "/providers/Microsoft.ServiceBus/operations",
        f"{SCOPE}/namespaces/oncebus/eventhubs/x",
        f"{SCOPE}/namespaces/oncebus/networkRuleSets/default",
        f"{SCOPE}/namespaces/oncebus/topics/t/subscriptions/s/other",
        f"{SCOPE}/namespaces/oncebus/topics/t/subscriptions/s/rules/r/x",
        f"{SCOPE}/namespaces/oncebus/authorizationRules/x/other",
        "/subscriptions/s/providers/Microsoft.ServiceBus/namespaces/oncebus",
    ],
)
def test_paths_that_lead_nowhere(tmp_path: Path, path: str) -> None:
    async def play(front: Front) -> None:
        assert refusal(await front.ask("GET", path, query=VERSION))[:2] == (404, "ResourceNotFound")

    scenario(tmp_path, play, pipeline=False)


def test_other_methods_and_bodies_too_large_are_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        refused: Answer = await Manager(front).ask("PATCH", "/queues/x", {})
        assert (refusal(refused)[0], refused.headers["allow"]) == (405, "GET, PUT, DELETE")
        large = await Manager(front).ask("PUT", "/queues/x", {"properties": {"userMetadata": "x" * (1 << 20)}})
        assert refusal(large)[:2] == (413, "RequestEntityTooLarge")

    scenario(tmp_path, play, pipeline=False)


def test_a_queue_that_takes_the_name_of_a_topic_is_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.topic("news")
        assert await Manager(front).refused("PUT", "/queues/news", {}) == (
            409,
            "Conflict",
            "SubCode=40900. The messaging entity 'news' already exists.",
        )
        assert (await Manager(front).refused("GET", "/queues/news"))[0] == 404

    scenario(tmp_path, play, pipeline=False)
