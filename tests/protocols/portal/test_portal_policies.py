"""Shared access policies: the rules of the namespace and of entities, and their keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx

from oncebus.model.access import AuthorizationRule, KeyFile, Right
from oncebus.model.entities import Queue
from oncebus.protocols.portal.links import link
from tests.protocols.http.http_front import ROOT, SENDER

from .visitor import Visitor, visit, words

APP = AuthorizationRule("app", frozenset({Right.SEND}), "app-one-app-one-app", "app-two-app-two-app")


def of(visitor: Visitor, queue: str = "orders") -> dict[str, AuthorizationRule]:
    rules = visitor.front.broker.catalogue.authorization_rules_of(queue)
    return {rule.name: rule for rule in rules}


def test_a_policy_of_a_queue_from_creation_to_deletion(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue()
        page = await visitor.get("policies", path="orders")
        assert "There is no policy here." in words(page)
        page = await visitor.new("policies", {"path": "orders", "rule": " app ", "Send": "on", "Listen": "on"})
        assert "The policy 'app' was created." in words(page)
        assert "Send, Listen" in words(page)
        made = of(visitor)["app"]
        assert made.rights == {Right.SEND, Right.LISTEN}
        assert made.primary_key not in page.text

        page = await visitor.get("policies/keys", path="orders", rule="app")
        assert page.headers["cache-control"] == "no-store"
        for key in (made.primary_key, made.secondary_key):
            string = (
                f"Endpoint=sb://localhost;SharedAccessKeyName=app;SharedAccessKey={key};EntityPath=orders"
                ";UseDevelopmentEmulator=true"
            )
            assert key in words(page)
            assert string in words(page)

        about = {"path": "orders", "rule": "app"}
        asked = await visitor.post("policies/renew", {**about, "key": "SecondaryKey"})
        assert "are refused at once" in words(asked)
        assert of(visitor)["app"] == made
        page = await visitor.new("policies/renew", {**about, "key": "SecondaryKey", "sure": "yes"})
        assert "The secondary key was renewed." in words(page)
        renewed = of(visitor)["app"]
        assert renewed == replace(made, secondary_key=renewed.secondary_key)
        assert renewed.secondary_key != made.secondary_key
        assert renewed.secondary_key in words(page)

        asked = await visitor.post("policies/delete", about)
        assert "This cannot be undone." in words(asked)
        assert "app" in of(visitor)
        page = await visitor.new("policies/delete", {**about, "sure": "yes"})
        assert "The policy 'app' was deleted." in words(page)
        assert of(visitor) == {}

    visit(tmp_path, play)


def test_policies_of_the_namespace_are_those_of_the_key_file(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.create()
    root = keys.rule(ROOT.name)

    async def play(visitor: Visitor) -> None:
        await visitor.sign_in(root)
        page = await visitor.new("policies", {"rule": "reader", "Listen": "on"})
        assert "Manage, Send, Listen" in words(page)
        assert keys.rule("reader").rights == {Right.LISTEN}
        # The last rule with Manage stays.
        refused = await visitor.post("policies/delete", {"rule": ROOT.name, "sure": "yes"})
        assert refused.status_code == 409
        assert "is the last one with Manage" in words(refused)
        # Whoever renews the key that they signed in with signs in again.
        answer = await visitor.post("policies/renew", {"rule": ROOT.name, "key": "PrimaryKey", "sure": "yes"})
        assert answer.status_code == 303
        assert (await visitor.get()).headers["location"].startswith(link("sign-in"))

    visit(tmp_path / "data", play, rule=None, rules=keys.rules, keys=keys)


def test_bad_policies_are_refused_at_their_field(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.broker.change(
            lambda catalogue, now: catalogue.create(Queue(name="orders", authorization_rules=(APP,)), now)
        )
        await visitor.get("policies", path="orders")

        async def refused(**fields: str) -> str:
            answer = await visitor.post("policies", {"path": "orders", **fields})
            assert answer.status_code == 400
            return words(answer)

        assert "There is a policy with this name." in await refused(rule="APP", Send="on")
        assert "Choose at least one right." in await refused(rule="other")
        assert "must be 1 to 50 letters" in await refused(rule="<b>", Send="on")
        assert of(visitor) == {"app": APP}
        for page, fields in (
            ("policies/renew", {"path": "orders", "rule": "app", "key": "ThirdKey"}),
            ("policies/renew", {"path": "orders", "rule": "none", "key": "PrimaryKey"}),
            ("policies/delete", {"path": "orders", "rule": "none", "sure": "yes"}),
            ("policies/delete", {"path": "nowhere", "rule": "app", "sure": "yes"}),
        ):
            assert (await visitor.post(page, fields)).status_code in (400, 404)
        assert of(visitor) == {"app": APP}

    visit(tmp_path, play)


def test_only_manage_sees_keys(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.broker.change(
            lambda catalogue, now: catalogue.create(Queue(name="orders", authorization_rules=(APP,)), now)
        )

        def hidden(answer: httpx.Response) -> bool:
            return answer.status_code == 403 and APP.primary_key not in answer.text

        for path in ("orders", None):
            assert hidden(await visitor.get("policies", path=path))
            assert hidden(await visitor.get("policies/keys", path=path, rule="app"))
        assert "Policies" not in words(await visitor.get("entity", path="orders"))
        form = {"path": "orders", "rule": "app", "sure": "yes", "key": "PrimaryKey", "Manage": "on"}
        for page in ("policies", "policies/renew", "policies/delete"):
            assert hidden(await visitor.post(page, form))
        assert of(visitor) == {"app": APP}

    visit(tmp_path, play, rule=SENDER)


def test_a_key_of_an_entity_manages_the_policies_of_that_entity_alone(tmp_path: Path) -> None:
    own = replace(APP, name="own", rights=frozenset({Right.MANAGE}))

    async def play(visitor: Visitor) -> None:
        for name, rules in (("orders", (own,)), ("other", (APP,))):
            queue = Queue(name=name, authorization_rules=rules)
            await visitor.front.broker.change(lambda catalogue, now, queue=queue: catalogue.create(queue, now))  # type: ignore[misc]
        await visitor.sign_in(own, entity="orders")
        assert (await visitor.get("policies", path="orders")).status_code == 200
        assert (await visitor.get("policies", path="other")).status_code == 403
        assert (await visitor.get("policies/keys", rule=ROOT.name)).status_code == 403

    visit(tmp_path, play, rule=None)
