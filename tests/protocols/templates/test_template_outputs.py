"""Outputs, the deployments that were made, and bodies as az writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncebus.protocols.management.documents import parse_document, quote_member
from oncebus.protocols.templates.history import History
from tests.protocols.http.http_front import SENDER, token

from .template_scenes import queue, resource, template
from .test_template_front import DEPLOYMENT, GROUP, Deployer, asked, play

ID = "resourceId('Microsoft.ServiceBus/namespaces/queues', 'oncebus', 'orders')"
RULE = "resourceId('Microsoft.ServiceBus/namespaces/queues/authorizationRules', 'oncebus', 'orders', 'app')"
ROOT_ID = "resourceId('Microsoft.ServiceBus/namespaces/authorizationRules', 'oncebus', 'RootManageSharedAccessKey')"


def with_outputs(**outputs: Any) -> dict[str, Any]:
    content = template(
        queue("orders", lockDuration="PT2M"), resource("queues/authorizationRules", "orders/app", {"rights": ["Send"]})
    )
    content["outputs"] = outputs
    return content


def text(value: str, kind: str = "string") -> dict[str, str]:
    return {"type": kind, "value": value}


def test_outputs_read_what_was_deployed(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        answer = await deployer.put(
            with_outputs(
                lock=text(f"[reference({ID}, '2024-01-01').lockDuration]"),
                whole=text(f"[reference({ID}, '2024-01-01', 'Full')]", "object"),
                namespace=text("[reference(resourceId('Microsoft.ServiceBus/namespaces', 'oncebus')).status]"),
                rights=text(f"[reference({RULE}).rights]", "array"),
                key=text(f"[listKeys({RULE}, '2024-01-01').primaryKey]"),
                string=text(f"[listKeys({ROOT_ID}, '2024-01-01').primaryConnectionString]"),
                secret=text(f"[listKeys({RULE}, '2024-01-01').primaryKey]", "securestring"),
                loop={"type": "array", "copy": {"count": 3, "input": "[copyIndex()]"}},
                absent={**text("x"), "condition": "[equals(1, 2)]"},
            )
        )
        assert answer.status == 200, answer.text
        outputs = answer.json["properties"]["outputs"]
        [rule] = deployer.broker.catalogue.queue("orders").authorization_rules
        root = deployer.keys.rule("RootManageSharedAccessKey")
        assert outputs["lock"] == {"type": "String", "value": "PT2M"}
        assert outputs["whole"]["value"]["properties"]["lockDuration"] == "PT2M"
        assert outputs["namespace"]["value"] == "Active"
        assert outputs["rights"] == {"type": "Array", "value": ["Send"]}
        assert outputs["key"]["value"] == rule.primary_key
        assert f"SharedAccessKey={root.primary_key}" in outputs["string"]["value"]
        assert outputs["secret"] == {"type": "SecureString"}
        assert outputs["loop"]["value"] == [0, 1, 2]
        assert "absent" not in outputs

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (text("[reference('orders').x]"), "Write its full id"),
        (text(f"[reference(concat({ID}, 'x'))]"), "could not be found"),
        (text(f"[listKeys({ID}, 'x')]"), "It is not an authorization rule."),
        (text("[reference('/subscriptions/s/nothing')]"), "There is no resource at the path"),
        (text("[listAccountSas('x', 'y')]"), "only reference and listKeys are supported"),
        (text("[nothing()]"), "The function 'nothing' is unknown."),
        ({"value": "x"}, "An output is an object with the 'type' of a parameter."),
        ("x", "An output is an object"),
    ],
)
def test_a_wrong_output_is_found_before_anything_changes(tmp_path: Path, output: Any, message: str) -> None:
    async def scenario(deployer: Deployer) -> None:
        answer = await deployer.put(with_outputs(one=output))
        assert answer.status == 400
        [problem] = answer.json["error"]["details"]
        assert message in problem["message"]
        assert problem["target"].startswith("outputs.one")
        assert deployer.version == 0

    play(tmp_path, scenario)


def test_deployments_are_kept(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        content = with_outputs(lock=text(f"[reference({ID}).lockDuration]"))
        made = (await deployer.put(content)).json

        async def ask(method: str, path: str, expected: int = 200) -> Any:
            answer = await deployer.ask(method, path)
            assert answer.status == expected, answer.text
            return answer.json if answer.body else None

        assert await ask("GET", DEPLOYMENT) == made
        assert await ask("GET", DEPLOYMENT.upper().replace("/SUBSCRIPTIONS", "/subscriptions")) == made
        assert await ask("GET", DEPLOYMENT.removesuffix("/first")) == {"value": [made]}
        assert await ask("HEAD", DEPLOYMENT, 204) is None
        assert (await ask("POST", f"{DEPLOYMENT}/exportTemplate"))["template"] == content
        operations = (await ask("GET", f"{DEPLOYMENT}/operations"))["value"]
        assert [each["properties"]["targetResource"]["id"].rpartition("/namespaces/oncebus/")[2] for each in operations]
        first = operations[0]
        assert (await ask("GET", f"{GROUP}/deployments/first/operations"))["value"] == operations
        assert await ask("GET", f"{DEPLOYMENT}/operations/{first['operationId']}") == first
        assert (await ask("GET", f"{DEPLOYMENT}/operations/none", 404))["error"][
            "code"
        ] == "DeploymentOperationNotFound"
        assert "it is complete" in (await ask("POST", f"{DEPLOYMENT}/cancel", 409))["error"]["message"]
        other = f"{GROUP}x/providers/Microsoft.Resources/deployments"
        assert await ask("GET", other) == {"value": []}
        assert (await ask("GET", f"{other}/first", 404))["error"]["code"] == "DeploymentNotFound"
        await ask("DELETE", DEPLOYMENT, 204)
        await ask("GET", DEPLOYMENT, 404)
        # What it deployed stays.
        assert deployer.broker.catalogue.find("orders") is not None

    play(tmp_path, scenario)


def test_deployments_need_manage(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        await deployer.put(with_outputs(key=text(f"[listKeys({RULE}, '2024-01-01').primaryKey]")))
        sender = token(deployer.front.time, SENDER)
        for method, path in (
            ("GET", ""),
            ("GET", "/operations"),
            ("POST", "/exportTemplate"),
            ("POST", "/cancel"),
            ("DELETE", ""),
            ("HEAD", ""),
        ):
            assert (await deployer.ask(method, f"{DEPLOYMENT}{path}", token=sender)).status in (401, 403)

    play(tmp_path, scenario)


def test_a_body_as_az_writes_it(tmp_path: Path) -> None:
    async def scenario(deployer: Deployer) -> None:
        content = template(queue("orders", userMetadata='a "template: {" // no comment'))
        whole = json.dumps(asked({}))
        body = whole.replace('"template": {}, ', "").removesuffix("}}")
        written = json.dumps(content, indent=2).replace('"resources"', '// the "template: of\n"resources"')
        answer = await deployer.ask("PUT", DEPLOYMENT, f"{body}, template:{written}}}}}".encode())
        assert answer.status == 200, answer.text
        assert deployer.broker.catalogue.queue("orders").user_metadata == 'a "template: {" // no comment'
        broken = await deployer.ask("PUT", DEPLOYMENT, b'{"properties": {templates:{}}}')
        assert (broken.status, broken.json["error"]["code"]) == (400, "InvalidRequestContent")

    play(tmp_path, scenario)


def test_a_long_text_without_an_end_takes_no_long_time() -> None:
    for piece in ('"', '"\\', "template ", "/*", "template:", "//"):
        quote_member(piece * 200_000, "template")
    assert parse_document(quote_member('{template : {"template": 1}}', "template")) == {"template": {"template": 1}}


def names_in(history: History) -> list[str]:
    return [json.loads(made.answer)["name"] for made in history.of("group")]


def test_the_history_has_limits() -> None:
    history = History(most=3, most_bytes=200)
    for number in range(5):
        history.add("Group", f"d{number}", {"name": f"d{number}"}, {}, [])
    assert names_in(history) == ["d4", "d3", "d2"]
    history.add("group", "D3", {"name": "again"}, {"text": "x" * 140}, [])
    assert names_in(history) == ["again", "d4"]
    history.add("group", "large", {"name": "large"}, {}, [{"text": "x" * 1000}])
    assert names_in(history) == ["large"]


def test_large_outputs_of_small_templates_count_in_the_history() -> None:
    history = History(most_bytes=1000)
    for number in range(5):
        history.add("group", f"d{number}", {"name": f"d{number}", "outputs": list(range(100))}, {}, [])
    assert names_in(history) == ["d4", "d3"]
