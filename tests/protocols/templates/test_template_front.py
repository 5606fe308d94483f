"""Deployments over HTTP, with an application without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.broker import Broker
from oncebus.model.access import ROOT_RULE, AuthorizationRule, KeyFile, Right
from oncebus.model.entities import Queue
from oncebus.model.entities.catalogue_files import CatalogueFileError
from oncebus.programs.serve.app import make_app
from oncebus.protocols.management.planning import Plan
from oncebus.protocols.templates.template import plan_template
from tests.protocols.http.http_front import LIMITS, ROOT, SENDER, Answer, Front, running_front, token

from .template_scenes import TYPE, queue, resource, rule, subscription, template, topic

GROUP = "/subscriptions/sub-id/resourceGroups/group"
DEPLOYMENT = f"{GROUP}/providers/Microsoft.Resources/deployments/first"
SCOPE = f"{GROUP}/providers/Microsoft.ServiceBus/namespaces/oncebus"
NEWS = template(
    topic("news", requiresDuplicateDetection=True),
    subscription("news/all"),
    rule("news/all/red", sqlFilter={"sqlExpression": "colour = 'red'"}),
)


class Deployer:
    """Deploys over a front whose namespace has a key file."""

    def __init__(self, front: Front, keys: KeyFile) -> None:
        self.front = front
        self.keys = keys
        self._began = front.broker.catalogue.version

    @property
    def broker(self) -> Broker:
        return self.front.broker

    @property
    def version(self) -> int:
        """Return how many versions the catalogue has advanced since the start."""
        return self.broker.catalogue.version - self._began

    async def ask(self, method: str, path: str, content: Any = None, **options: Any) -> Answer:
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        return await self.front.ask(method, path, body, query="api-version=2024-03-01", **options)

    async def put(self, content: Any, path: str = DEPLOYMENT, **values: Any) -> Answer:
        return await self.ask("PUT", path, asked(content, **values))

    async def what_if(self, content: Any) -> list[tuple[str, str]]:
        answer = await self.ask("POST", f"{DEPLOYMENT}/whatIf", asked(content))
        assert answer.status == 200, answer.text
        assert answer.json["status"] == "Succeeded"
        return summarized(answer.json["properties"]["changes"])

    async def export(self) -> Any:
        answer = await self.ask("POST", f"{GROUP}/exportTemplate", {"resources": ["*"]})
        assert answer.status == 200, answer.text
        return answer.json


def asked(content: Any, **values: Any) -> dict[str, Any]:
    given = {name: {"value": value} for name, value in values.items()}
    return {"properties": {"mode": "Incremental", "template": content, "parameters": given}}


def summarized(changes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["changeType"], each["resourceId"].removeprefix(SCOPE)) for each in changes]


def play(data: Path, scenario: Callable[[Deployer], Awaitable[None]], *, has_keys: bool = True) -> None:
    async def run() -> None:
        keys = KeyFile(data / "keys.json")
        keys.create()
        async with running_front(data / "broker", pipeline=False) as front:
            rules = lambda: (ROOT, SENDER, *keys.rules())  # noqa: E731
            known = keys if has_keys else None
            front.app = make_app(front.broker, namespace_rules=rules, limits=LIMITS, keys=known)
            await scenario(Deployer(front, keys))

    asyncio.run(run())


def test_a_template_is_deployed_once_and_then_changes_nothing(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        assert await deployer.what_if(NEWS) == [
            ("Create", "/topics/news"),
            ("Create", "/topics/news/subscriptions/all"),
            ("Create", "/topics/news/subscriptions/all/rules/red"),
        ]
        assert deployer.version == 0
        first = await deployer.put(NEWS)
        assert first.status == 200, first.text
        assert first.json["id"] == DEPLOYMENT
        assert first.json["type"] == "Microsoft.Resources/deployments"
        assert first.json["properties"]["provisioningState"] == "Succeeded"
        assert first.json["properties"]["outputResources"][0] == {"id": f"{SCOPE}/topics/news"}
        assert deployer.version == 1
        assert deployer.broker.catalogue.topic("news").window is not None
        again = await deployer.put(NEWS)
        assert {change for change, _ in summarized(again.json["properties"]["changes"])} == {"NoChange"}
        assert deployer.version == 1

    play(tmp_path, scenario)


def test_a_change_is_shown_property_by_property(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        await deployer.put(template(queue("a", maxDeliveryCount=3, forwardTo="b"), queue("b")))
        answer = await deployer.put(template(queue("a", maxDeliveryCount=4, userMetadata="mine")))
        (change,) = answer.json["properties"]["changes"]
        assert change["changeType"] == "Modify"
        assert sorted(change["delta"], key=lambda each: str(each["path"])) == [
            {"path": "forwardTo", "propertyChangeType": "Delete", "before": "b", "after": None},
            {"path": "maxDeliveryCount", "propertyChangeType": "Modify", "before": 3, "after": 4},
            {"path": "userMetadata", "propertyChangeType": "Create", "before": None, "after": "mine"},
        ]
        assert (change["before"]["lockDuration"], change["after"]["lockDuration"]) == ("PT1M", "PT1M")

    play(tmp_path, scenario)


def test_a_template_with_errors_changes_nothing_and_all_are_reported(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        content = template(queue("good"), queue("bad", lockDuration="PT9M"), queue("worse", size=1))
        for answer in (
            await deployer.put(content),
            await deployer.ask("POST", f"{DEPLOYMENT}/whatIf", asked(content)),
            await deployer.ask("POST", f"{DEPLOYMENT}/validate", asked(content)),
        ):
            assert answer.status == 400
            error = answer.json["error"]
            assert error["code"] == "InvalidTemplate"
            assert error["message"] == "The template cannot be deployed: 2 errors. Nothing was changed."
            assert [each["target"] for each in error["details"]] == [
                "resources[2].properties.size",
                "resources[1].properties.lockDuration",
            ]
        assert deployer.version == 0
        good = await deployer.ask("POST", f"{DEPLOYMENT}/validate", asked(template(queue("good"))))
        assert good.json["properties"]["provisioningState"] == "Succeeded"
        assert deployer.version == 0

    play(tmp_path, scenario)


def test_parameters_come_with_the_request_and_the_deployment_is_known_to_the_template(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        name = "[concat('bus/', parameters('p'), '-', deployment().name, '-', resourceGroup().name)]"
        content = template(resource("queues", "", name=name), parameters={"p": {"type": "string"}})
        path = f"{GROUP}/providers/MICROSOFT.RESOURCES/Deployments/my%20first/"
        assert (await deployer.put(content, path, p="x")).status == 400
        path = f"{GROUP.upper()}/providers/MICROSOFT.RESOURCES/Deployments/my-first/"
        assert (await deployer.put(content, path, p="x")).status == 200
        assert deployer.broker.catalogue.queue("x-my-first-GROUP")

    play(tmp_path, scenario)


def test_a_template_for_another_namespace_is_deployed_here_with_a_warning(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        answer = await deployer.put(template({"type": TYPE, "name": "prod", "sku": {"name": "Premium"}}))
        assert [each["message"] for each in answer.json["properties"]["diagnostics"]] == [
            "The template names the namespace 'prod', but is deployed to 'oncebus'.",
            (
                "The tier becomes Premium. If the broker has the setting 'tier', change it too, "
                "because it applies at every start."
            ),
        ]
        assert summarized(answer.json["properties"]["changes"]) == [("Modify", "")]

    play(tmp_path, scenario)


def test_deploying_and_exporting_need_manage_on_the_namespace(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        time = deployer.front.time
        requests = [("PUT", DEPLOYMENT), ("POST", f"{DEPLOYMENT}/whatIf"), ("POST", f"{GROUP}/exportTemplate")]
        for method, path in requests:
            for given, status in (
                (None, 401),
                ("SharedAccessSignature nonsense", 401),
                (token(time, SENDER), 403),
                (token(time, ROOT, "orders"), 403),
            ):
                answer = await deployer.ask(method, path, asked(NEWS), token=given)
                assert answer.status == status, (method, path, given, answer.text)
                assert "error" in answer.json
        assert deployer.version == 0

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"{", 400, "The body of the request is not JSON: line 1, column 2"),
        (b"[]", 400, "The body of the request is array. Not an object."),
        ({}, 400, "The member 'properties' is null. Not an object."),
        ({"properties": {}}, 400, "The member 'template' is missing."),
        ({"properties": {"mode": "Complete", "template": {}}}, 400, "The mode 'Complete' is not supported."),
        ({"properties": {"templateLink": {"uri": "x"}}}, 400, "The member 'templateLink' is not supported."),
        (b" " * (4 << 20) + b"{}", 413, "The body of the request exceeds the limit of 4194304 bytes."),
    ],
)
def test_a_request_that_is_no_deployment_is_refused(tmp_path: Path, content: Any, status: int, said: str) -> None:
    async def scenario(deployer: Deployer) -> None:
        answer = await deployer.ask("PUT", DEPLOYMENT, content)
        assert answer.status == status
        assert said in answer.json["error"]["message"]

    play(tmp_path, scenario)


def test_comments_are_allowed_in_a_request(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        body = b"// mine\n" + json.dumps(asked(NEWS)).encode()
        assert (await deployer.ask("PUT", DEPLOYMENT, body)).status == 200

    play(tmp_path, scenario)


def test_methods_that_deployments_do_not_have(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        for method, path, allowed in (
            ("PATCH", DEPLOYMENT, "PUT, GET, HEAD, DELETE"),
            ("GET", f"{DEPLOYMENT}/whatIf", "POST"),
            ("PUT", f"{GROUP}/exportTemplate", "POST"),
        ):
            answer = await deployer.ask(method, path)
            assert (answer.status, answer.headers["allow"]) == (405, allowed)

    play(tmp_path, scenario)


def test_the_namespaces_rules_go_to_the_key_file(tmp_path: Path) -> None:
    content = template(queue("a"), resource("authorizationRules", "reader", {"rights": ["Listen"]}))

    async def scenario(deployer: Deployer) -> None:
        assert (await deployer.put(content)).status == 200
        first = deployer.keys.rule("reader")
        assert first.rights == {Right.LISTEN}
        content["resources"][1]["properties"]["rights"] = ["Listen", "Send"]
        assert (await deployer.put(content)).status == 200
        second = deployer.keys.rule("reader")
        assert second.rights == {Right.LISTEN, Right.SEND}
        assert second.primary_key == first.primary_key

    play(tmp_path, scenario)


def test_the_right_to_manage_may_change_hands_in_one_deployment(tmp_path: Path) -> None:
    def rights(name: str, *given: str) -> dict[str, Any]:
        return resource("authorizationRules", name, {"rights": list(given)})

    everything = ("Manage", "Send", "Listen")
    content = template(rights("reader", "Listen"), rights("next", *everything), rights(ROOT_RULE, "Send"))

    async def scenario(deployer: Deployer) -> None:
        deployer.keys.add("READER", [Right.SEND])
        deployer.keys.add("next", [Right.SEND])
        assert (await deployer.put(content)).status == 200
        found = {rule.name: rule.rights for rule in deployer.keys.rules()}
        assert found == {ROOT_RULE: {Right.SEND}, "READER": {Right.LISTEN}, "next": set(Right)}

    play(tmp_path, scenario)


def test_without_a_key_file_the_namespaces_rules_cannot_be_deployed(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        answer = await deployer.put(template(resource("authorizationRules", "reader", {"rights": ["Listen"]})))
        assert answer.status == 400
        assert answer.json["error"]["details"][0]["target"] == "resources[0]"

    play(tmp_path, scenario, has_keys=False)


def test_rules_are_taken_back_when_the_rest_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = template(
        queue("a"),
        resource("authorizationRules", "new", {"rights": ["Listen"]}),
        resource("authorizationRules", "old", {"rights": ["Listen", "Send"]}),
    )

    def fail(_: object) -> None:
        raise CatalogueFileError("The disk is full.")

    async def scenario(deployer: Deployer) -> None:
        deployer.keys.add("old", [Right.SEND])
        before = {rule.name: rule for rule in deployer.keys.rules()}
        monkeypatch.setattr(deployer.front.core.catalogues.versions, "publish", fail)
        answer = await deployer.put(content)
        assert answer.status == 503
        assert {rule.name: rule for rule in deployer.keys.rules()} == before
        assert deployer.version == 0

    play(tmp_path, scenario)


def test_a_change_in_between_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    async def scenario(deployer: Deployer) -> None:
        loop = asyncio.get_running_loop()

        async def interfere(name: str) -> None:
            await deployer.broker.change(lambda catalogue, now: catalogue.create(Queue(name=name), now))

        def interrupted(*given: Any, **options: Any) -> Plan:
            calls.append(1)
            if len(calls) < 3:
                asyncio.run_coroutine_threadsafe(interfere(f"other-{len(calls)}"), loop).result(10)
            return plan_template(*given, **options)

        monkeypatch.setattr("oncebus.protocols.templates.front.plan_template", interrupted)
        assert (await deployer.put(NEWS)).status == 200
        names = sorted(entity.path for entity in deployer.broker.catalogue.entities.values())
        assert names == ["news", "news/Subscriptions/all", "other-1", "other-2"]
        assert len(calls) == 3

    play(tmp_path, scenario)


def test_a_deployment_that_is_always_outdated_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    async def scenario(deployer: Deployer) -> None:
        loop = asyncio.get_running_loop()

        async def interfere() -> None:
            version = deployer.broker.catalogue.version
            await deployer.broker.change(lambda catalogue, now: catalogue.create(Queue(name=f"q{version}"), now))

        def interrupted(*given: Any, **options: Any) -> Plan:
            asyncio.run_coroutine_threadsafe(interfere(), loop).result(10)
            return plan_template(*given, **options)

        monkeypatch.setattr("oncebus.protocols.templates.front.plan_template", interrupted)
        answer = await deployer.put(NEWS)
        assert (answer.status, answer.json["error"]["code"]) == (409, "DeploymentActive")
        assert deployer.broker.catalogue.find("news") is None

    play(tmp_path, scenario)


def test_an_exported_template_can_be_deployed(tmp_path: Path) -> None:
    async def first(deployer: Deployer) -> None:
        await deployer.put(template(*NEWS["resources"], queue("a~b", forwardTo="news")))
        deployer.keys.add("reader", [Right.LISTEN])
        exported = await deployer.export()
        assert list(exported) == ["template"]
        keys: list[AuthorizationRule] = list(deployer.keys.rules())
        assert not any(rule.primary_key in json.dumps(exported) for rule in keys)
        assert {change for change, _ in await deployer.what_if(exported["template"])} == {"NoChange"}
        (tmp_path / "exported.json").write_text(json.dumps(exported["template"]))

    async def second(deployer: Deployer) -> None:
        exported = json.loads((tmp_path / "exported.json").read_text())
        assert (await deployer.put(exported)).status == 200
        assert (await deployer.export())["template"] == exported
        assert deployer.keys.rule("reader")

    play(tmp_path / "one", first)
    play(tmp_path / "two", second)


def test_what_cannot_be_exported_is_reported(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        await deployer.broker.change(lambda catalogue, now: catalogue.create(Queue(name="a~b"), now))
        error = (await deployer.export())["error"]
        assert error["code"] == "ExportTemplateCompletedWithErrors"
        assert "'a~b'" in error["details"][0]["message"]

    play(tmp_path, scenario)
