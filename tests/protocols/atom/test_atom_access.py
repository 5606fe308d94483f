"""The rights that management needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.model.access import AuthorizationRule, Right, make_token
from oncebus.values.durations import HOUR
from tests.protocols.atom.admin import (
    VERSION,
    Admin,
    described,
    description,
    elements,
    refusal,
    titles,
    without_tracking,
)
from tests.protocols.http.http_front import LISTENER, ROOT, SENDER, Front, Shared, scenario, token

REQUESTS = [
    ("GET", "orders", "Manage,EntityRead claims required"),
    ("PUT", "new", "Authorization failed for specified action: Manage,EntityWrite."),
    ("DELETE", "orders", "Authorization failed for specified action: Manage,EntityDelete."),
    ("GET", "$Resources/queues", "Manage,EntityRead claims required"),
    ("GET", "$namespaceinfo", "Manage,EntityRead claims required"),
    ("GET", "news/subscriptions", "denied for the operation 'EnumerateSubscriptions' on the endpoint"),
    ("GET", "news/subscriptions/all", "denied for the operation 'GetSubscription' on the endpoint"),
    ("PUT", "news/subscriptions/new", "denied for the operation 'PutSubscription' on the endpoint"),
    ("DELETE", "news/subscriptions/all", "denied for the operation 'DeleteSubscription' on the endpoint"),
    ("PUT", "news/subscriptions/all/rules/new", "denied for the operation 'PutRule' on the endpoint"),
    ("DELETE", "news/subscriptions/all/rules/$Default", "denied for the operation 'DeleteRule' on the endpoint"),
]
SUPPLEMENTARY = "ServiceBusSupplementaryAuthorization"
DEAD_LETTERS = "ServiceBusDlqSupplementaryAuthorization"
FORWARDING = description("QueueDescription", elements(ForwardTo="sb://bus.example.org/orders"))


@pytest.mark.parametrize("rule", [SENDER, LISTENER], ids=["sender", "listener"])
@pytest.mark.parametrize(("method", "path", "text"), REQUESTS)
def test_managing_needs_the_right_to_manage(
    shared: Shared, rule: AuthorizationRule, method: str, path: str, text: str
) -> None:
    async def play(front: Front) -> None:
        before = front.broker.catalogue
        given = token(front.time, rule)
        refused = await front.ask(method, f"/{path}", description("QueueDescription"), query=VERSION, token=given)
        assert refusal(refused)[0] == 401
        assert text in refused.text
        assert front.broker.catalogue is before

    shared(play)


def test_listen_permits_reading_the_rules_of_a_subscription(shared: Shared) -> None:
    async def play(front: Front) -> None:
        path = "news/subscriptions/all/rules"
        assert titles(await Admin(front).get(path, token=token(front.time, LISTENER))) == ["$Default"]
        assert (await Admin(front).get(f"{path}/$Default", token=token(front.time, LISTENER))).status == 200
        assert (await Admin(front).get(path, token=token(front.time, SENDER))).status == 401

    shared(play)


def test_without_a_token_the_answer_does_not_depend_on_what_exists(shared: Shared) -> None:
    async def play(front: Front) -> None:
        answers = [
            await front.ask(method, path, b"<", query=query, token=None)
            for method in ("GET", "PUT", "DELETE", "POST")
            for path in ("/orders", "/nothing", "/$Resources/queues", "/$namespaceinfo", "/%ff")
            for query in (VERSION, "api-version=1", "")
        ]
        texts = {(answer.status, without_tracking(answer.text)) for answer in answers}
        assert texts == {(401, without_tracking(answers[0].text))}

    shared(play)


def test_a_token_for_the_requested_address_suffices(tmp_path: Path) -> None:
    """The JavaScript client signs each address separately, in lower case and with its query."""

    async def play(front: Front) -> None:
        await front.topic("News", "All")
        await front.queue("Other")
        for path, resource in (
            ("$Resources/Queues", "$resources/queues?api-version=2021-05"),
            ("$namespaceinfo", "$namespaceinfo?api-version=2021-05"),
            ("News/Subscriptions/All/Rules", "news/subscriptions/all/rules?api-version=2021-05"),
            ("News", "news?api-version=2021-05"),
        ):
            own = token(front.time, ROOT, resource)
            assert (await Admin(front).get(path, token=own)).status == 200, path
            assert (await Admin(front).get("Other", token=own)).status == 401

    scenario(tmp_path, play, pipeline=False)


def test_a_bearer_token_is_accepted(shared: Shared) -> None:
    async def play(front: Front) -> None:
        assert (await Admin(front).get("orders", token=f"Bearer {token(front.time)}")).status == 200
        refused = await Admin(front).get("orders", token="Bearer eyJ0.eyJ1.sig")
        assert "MalformedToken" in refusal(refused)[1]

    shared(play)


def test_the_rule_of_an_entity_manages_only_that_entity(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        own = AuthorizationRule("own", frozenset({Right.MANAGE}), "own-one", "own-two")
        await front.queue("orders", authorization_rules=(own,))
        await front.queue("other")
        given = make_token("sb://bus.example.org/orders", "own", "own-one", front.time.now + HOUR)
        assert described(await Admin(front).get("orders", token=given))["MaxDeliveryCount"] == "10"
        assert (await Admin(front).get("other", token=given)).status == 401
        assert (await Admin(front).get("$Resources/queues", token=given)).status == 401

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("rule", "resource", "status"),
    [(ROOT, "", 201), (ROOT, "orders", 201), (ROOT, "other", 401), (SENDER, "", 401), (LISTENER, "orders", 401)],
)
@pytest.mark.parametrize(
    ("name", "header"), [("ForwardTo", SUPPLEMENTARY), ("ForwardDeadLetteredMessagesTo", DEAD_LETTERS)]
)
def test_forwarding_needs_a_second_token_that_manages_the_target(
    tmp_path: Path, name: str, header: str, rule: AuthorizationRule, resource: str, status: int
) -> None:
    async def play(front: Front) -> None:
        await front.queue("orders")
        body = description("QueueDescription", elements(**{name: "sb://bus.example.org/orders"}))
        # The request's own token would suffice, but the second one is the one that is checked.
        made = await Admin(front).put("new", body, {header: token(front.time, rule, resource)})
        assert made.status == status, made.text
        if status == 201:
            assert described(made)[name] == "sb://bus.example.org/orders"
        assert (front.broker.catalogue.find("new") is not None) == (status == 201)

    scenario(tmp_path, play)


def test_without_a_second_token_the_first_must_manage_the_target(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("orders")
        await front.topic("news", "all")
        narrow = token(front.time, ROOT, "new")
        refused = await front.ask("PUT", "/new", FORWARDING, query=VERSION, token=narrow)
        assert "InvalidAudience" in refusal(refused)[1]
        second = {SUPPLEMENTARY: token(front.time, ROOT, "orders")}
        assert (await front.ask("PUT", "/new", FORWARDING, second, query=VERSION, token=narrow)).status == 201
        # Changing an entity that forwards there already needs no right, unless its target changes.
        again = {"If-Match": "*"}
        assert (await front.ask("PUT", "/new", FORWARDING, again, query=VERSION, token=narrow)).status == 200
        elsewhere = description("QueueDescription", elements(ForwardTo="news"))
        assert (await front.ask("PUT", "/new", elsewhere, again, query=VERSION, token=narrow)).status == 401
        assert front.broker.catalogue.queue("new").forward_to == "orders"
        subscription = description("SubscriptionDescription", elements(ForwardTo="orders"))
        narrow = token(front.time, ROOT, "news/subscriptions/all")
        answer = await front.ask("PUT", "/news/subscriptions/all", subscription, again, query=VERSION, token=narrow)
        assert answer.status == 401
        wide = await front.ask("PUT", "/news/subscriptions/all", subscription, again, query=VERSION)
        assert described(wide)["ForwardTo"] == "sb://bus.example.org/orders"

    scenario(tmp_path, play)


def test_managers_see_keys_that_sign_from_then_on(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        rules = (
            "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
            "<KeyName>sender</KeyName><PrimaryKey>one-of-16-letters</PrimaryKey></AuthorizationRule></AuthorizationRules>"
        )
        made = await Admin(front).create("orders", "Queue", rules)
        (rule,) = front.broker.catalogue.queue("orders").authorization_rules
        assert rule.primary_key == "one-of-16-letters"
        assert len(rule.secondary_key) == 44
        assert f"<SecondaryKey>{rule.secondary_key}</SecondaryKey>" in made.text
        for key in ("one-of-16-letters", rule.secondary_key):
            given = make_token("sb://bus.example.org/orders", "sender", key, front.time.now + HOUR)
            assert (await front.ask("POST", "/orders/messages", b"x", token=given)).status == 201
        for key in ("o;e-of-16-letters", "two"):
            refused = refusal(await Admin(front).update("orders", "Queue", rules.replace("one-of-16-letters", key)))
            assert (refused[0], key in refused[1]) == (400, False)

    scenario(tmp_path, play)
