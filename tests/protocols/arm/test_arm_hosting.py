"""What surrounds a namespace, what it does not have, and what az writes into its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebus.model.entities.catalogue_json import catalogue_from_json, catalogue_to_json
from tests.protocols.http.http_front import SENDER, Front, scenario, token

from .resource_requests import NAMESPACE, VERSION, Manager, refusal

S = "/subscriptions/s"


def test_any_valid_token_sees_what_surrounds_the_namespace(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        async def get(path: str, method: str = "GET") -> Any:
            answer = await front.ask(method, path, query=VERSION, token=token(front.time, SENDER))
            assert answer.status == 200, answer.text
            return answer.json

        tenant = (await get("/tenants"))["value"][0]["tenantId"]
        [subscription] = (await get("/subscriptions"))["value"]
        assert (subscription["tenantId"], subscription["state"]) == (tenant, "Enabled")
        assert (await get(S))["subscriptionId"] == "s"
        assert [each["name"] for each in (await get(f"{S}/resourceGroups"))["value"]] == ["local"]
        for method in ("GET", "PUT", "PATCH"):
            assert (await get(f"{S}/resourcegroups/any", method))["name"] == "any"
        assert [each["namespace"] for each in (await get(f"{S}/providers"))["value"]] == [
            "Microsoft.ServiceBus",
            "Microsoft.Resources",
        ]
        assert (await get(f"{S}/providers/microsoft.servicebus"))["registrationState"] == "Registered"
        assert (await get("/providers/Microsoft.ServiceBus"))["namespace"] == "Microsoft.ServiceBus"
        assert (await get(f"{S}/providers/Microsoft.ServiceBus/register", "POST"))["namespace"]
        assert (await get(f"{S}/locations"))["value"][0]["name"] == "local"

    scenario(tmp_path, play)


def test_without_a_token_nothing_is_told(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for path in ("/tenants", "/subscriptions", f"{S}/providers", f"{S}/resources", f"{NAMESPACE}/networkRuleSets"):
            answer = await front.ask("GET", path, query=VERSION, token=None)
            assert refusal(answer)[:2] == (401, "AuthenticationFailed")

    scenario(tmp_path, play)


def test_resources_are_the_namespace(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for path, group in ((f"{S}/resources", "local"), (f"{S}/resourceGroups/mine/resources", "mine")):
            answer = await front.ask("GET", path, query=VERSION)
            [found] = answer.json["value"]
            assert found["id"].startswith(f"{S}/resourceGroups/{group}/providers/Microsoft.ServiceBus/namespaces/")
        refused = await front.ask("GET", f"{S}/resources", query=VERSION, token=token(front.time, SENDER))
        assert refused.status == 403

    scenario(tmp_path, play)


def test_errors_are_json_and_name_the_whole_path(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        status, code, text = refusal(await front.ask("GET", f"{NAMESPACE}/unknown/{'x' * 200}", query=VERSION))
        assert (status, code) == (404, "ResourceNotFound")
        assert f"/namespaces/oncebus/unknown/{'x' * 200}" in text
        assert refusal(await front.ask("GET", f"{S}/providers/Microsoft.Web", query=VERSION))[0] == 404
        assert refusal(await front.ask("DELETE", f"{S}/resourceGroups/any", query=VERSION))[:2] == (
            405,
            "MethodNotAllowed",
        )
        assert refusal(await front.ask("GET", f"{S}/tagNames", query=VERSION))[0] == 404

    scenario(tmp_path, play)


def test_the_network_rules_allow_everything_and_stay_so(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        found = await manager.get("/networkRuleSets/default")
        assert found["properties"]["defaultAction"] == "Allow"
        assert (await manager.get("/networkrulesets"))["value"] == [found]
        assert await manager.put("/networkRuleSets/default", **found["properties"]) == found
        for change in ({"defaultAction": "Deny"}, {"ipRules": [{"ipMask": "10.0.0.1"}]}, {"other": 1}):
            refused = await manager.refused("PUT", "/networkRuleSets/default", {"properties": change})
            assert refused[:2] == (400, "BadRequest")

    scenario(tmp_path, play)


def test_features_that_are_absent(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        for feature in ("disasterRecoveryConfigs", "migrationConfigurations", "privateEndpointConnections"):
            assert await manager.get(f"/{feature}") == {"value": []}
            assert (await manager.refused("GET", f"/{feature}/one"))[:2] == (404, "ResourceNotFound")
            status, _, text = await manager.refused("PUT", f"/{feature}/one", {"properties": {}})
            assert (status, f"'{feature}/one' is not supported" in text) == (400, True)
            assert (await manager.ask("DELETE", f"/{feature}/one")).status == 204
        assert (await manager.get("/privateLinkResources")) == {"value": []}
        checked = await manager.ask("POST", "/disasterRecoveryConfigs/CheckNameAvailability", {"name": "x"})
        assert checked.json["nameAvailable"] is True
        assert (await manager.refused("POST", "/disasterRecoveryConfigs/one/failover"))[0] == 404
        assert (await manager.refused("POST", "/failover", {}))[0] == 400
        sender = token(front.time, SENDER)
        for method in ("GET", "PUT", "DELETE", "POST"):
            assert (await manager.refused(method, "/disasterRecoveryConfigs/one", {}, token=sender))[0] == 403
        other = NAMESPACE.replace("namespaces/oncebus", "namespaces/other")
        assert (await front.ask("GET", f"{other}/networkRuleSets", query=VERSION)).status == 404

    scenario(tmp_path, play)


def test_tags_stay_and_the_name_of_the_sku_wins(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)

        async def put(**content: Any) -> Any:
            answer = await manager.ask("PUT", "", content)
            assert answer.status == 200, answer.text
            return answer.json

        assert (await put(tags={"team": "orders", "Ä": ""}))["tags"] == {"team": "orders", "Ä": ""}
        made = await put(sku={"name": "Premium", "tier": "Standard"})
        assert (made["sku"]["name"], made["tags"]) == ("Premium", {"team": "orders", "Ä": ""})
        catalogue = front.broker.catalogue
        assert catalogue_from_json(catalogue_to_json(catalogue)).namespace.tags == (("team", "orders"), ("Ä", ""))
        assert (await put(tags={}))["tags"] == {}
        assert "tags" not in catalogue_to_json(front.broker.catalogue)
        for tags in ({"a": 1}, ["a"], {"": "x"}, {"a": "x" * 257}, {str(at): "" for at in range(51)}):
            assert (await manager.refused("PUT", "", {"tags": tags}))[:2] == (400, "BadRequest")

    scenario(tmp_path, play)


def test_promises_that_a_broker_cannot_keep_are_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        manager = Manager(front)
        for content in (
            {"identity": {"type": "SystemAssigned"}},
            {"properties": {"geoDataReplication": {"locations": [{"locationName": "there"}]}}},
        ):
            status, _, text = await manager.refused("PUT", "", content)
            assert (status, "not supported" in text) == (400, True)
        assert (await manager.ask("PUT", "", {"identity": {"type": "None"}})).status == 200

    scenario(tmp_path, play)
