"""Authorization rules as resources, their keys, and the rights that operations need."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.model.access import AuthorizationRule, Right
from tests.protocols.arm.resource_requests import NAMESPACE, Manager, refusal
from tests.protocols.http.http_front import HOST, LISTENER, ROOT, SENDER, Front, scenario, token


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
        chosen = "a-key-of-my-own!"
        own = (
            await manager.ask("POST", f"{path}/mine/regenerateKeys", {"keyType": "secondarykey", "key": chosen})
        ).json
        assert (own["primaryKey"], own["secondaryKey"]) == (new["primaryKey"], chosen)
        (rule,) = front.broker.catalogue.topic("news").authorization_rules
        assert (rule.primary_key, rule.secondary_key, len(rule.rights)) == (new["primaryKey"], chosen, 3)
        for content, text in (
            ({"keyType": "Third"}, "The property 'keyType' has value 'Third'. Not one of PrimaryKey, SecondaryKey."),
            ({"keyType": "PrimaryKey", "key": "a;b" * 6}, "PrimaryKey of authorization rule 'mine' is not a key"),
            ({"keyType": "PrimaryKey", "key": "x"}, "is too short: it needs at least 16 characters."),
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
        # Leaving the property out removes it.
        assert "forwardTo" not in (await Manager(front).put("/queues/new"))["properties"]

    scenario(tmp_path, play, pipeline=False)
