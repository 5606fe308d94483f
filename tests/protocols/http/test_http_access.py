"""The rights that requests need, and how little callers without them learn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.model.access import AuthorizationRule, KeyFileError, Right
from oncebus.model.access.jwts import make_jwt
from oncebus.protocols.http import requests
from oncebus.values.durations import SECOND
from tests.broker.in_process import FakeTime
from tests.protocols.http.http_front import HOST, LISTENER, NAMESPACE, ROOT, SENDER, Front, Shared, scenario, token

GUID = "00000000-0000-0000-0000-000000000001"
ROUTES = [
    ("POST", "/orders/messages", "Send"),
    ("POST", "/orders/messages/head", "Listen"),
    ("DELETE", "/orders/messages/head", "Listen"),
    ("DELETE", f"/orders/messages/1/{GUID}", "Listen"),
    ("PUT", f"/orders/messages/1/{GUID}", "Listen"),
    ("POST", f"/orders/messages/1/{GUID}", "Listen"),
    ("POST", "/orders/$DeadLetterQueue/messages/head", "Listen"),
    ("GET", "/orders/$duplicates", "Listen"),
    ("DELETE", "/orders/$messages", "Manage"),
    ("GET", "/orders/$forgets", "Listen"),
    ("POST", "/orders/$forgets", "Manage"),
    ("GET", "/metrics", "Manage"),
    ("GET", "/$quarantine", "Manage"),
    ("POST", "/", None),
    ("GET", "/orders", None),
    ("GET", "/nothing/here", None),
    ("POST", "/no-such-queue/messages", "Send"),
    ("GET", "/orders/%ff/messages", None),
    ("OPTIONS", "/orders/messages", None),
    ("GET", "/health/", None),
    ("GET", "/%68ealth", None),
    ("GET", "//health", None),
]
BAD_TOKENS: list[tuple[Callable[[FakeTime], str | None], str]] = [
    (lambda time: None, "MissingToken: The authorization header was not found."),
    (lambda time: "Bearer x", "MalformedToken: The credentials contained in the authorization header are not in the"),
    (lambda time: token(time).replace("sig=", "sig=A"), "InvalidSignature: The token has an invalid signature."),
    (lambda time: token(time, expires=time.now - SECOND), "ExpiredToken: The token is expired. Expiration time: '"),
    (lambda time: token(time).replace(HOST, "other.example.org"), "InvalidSignature"),
]


@pytest.mark.parametrize(("given", "text"), BAD_TOKENS)
def test_without_a_good_token_every_route_answers_the_same(
    tmp_path: Path, given: Callable[[FakeTime], str | None], text: str
) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        answers = set()
        for method, path, _ in ROUTES:
            answer = await front.ask(method, path, b"{", {"BrokerProperties": "{"}, token=given(front.time))
            answers.add((answer.status, answer.text))
        assert len(answers) == 1
        status, body = answers.pop()
        assert status == 401
        assert body.startswith(f"<Error><Code>401</Code><Detail>{text}")
        assert (await front.broker.counts("orders")).new == 0
        assert (await front.ask("GET", "/health", token=None)).status == 200
        # The service answers everybody here, with an empty list.
        assert "orders" not in (await front.ask("GET", "/", token=given(front.time))).text

    scenario(tmp_path, play)


@pytest.mark.parametrize("rule", [SENDER, LISTENER])
@pytest.mark.parametrize(("method", "path", "right"), [route for route in ROUTES if route[2]])
def test_each_operation_needs_its_right(
    shared: Shared, rule: AuthorizationRule, method: str, path: str, right: str
) -> None:
    async def play(front: Front) -> None:
        answer = await front.ask(method, path, query="timeout=0", token=token(front.time, rule))
        assert (answer.status != 401) == (right in rule.rights)
        if answer.status == 401:
            assert f"{right}" in answer.text
            assert "claim" in answer.text

    shared(play)


@pytest.mark.parametrize("right", Right)
def test_a_rule_for_metrics_reads_them_and_nothing_else(tmp_path: Path, right: Right) -> None:
    scraper = AuthorizationRule("scraper", frozenset({right}), "scraper-one", "scraper-two", only_metrics=True)

    async def play(front: Front) -> None:
        await front.queue()
        claims = {"iss": f"https://{HOST}/adfs", "exp": front.time.now // SECOND + 60}
        for signed in (token(front.time, scraper), "Bearer " + make_jwt("scraper", "scraper-one", claims)):
            for method, path, needed in ROUTES:
                answer = await front.ask(method, path, query="timeout=0", token=signed)
                if path == "/metrics":
                    assert (answer.status, "oncebus_healthy" in answer.text) == (200, True)
                elif needed:
                    assert answer.status == 401, path
            for method, path in (
                ("GET", "/orders"),
                ("PUT", "/orders2"),
                ("DELETE", "/orders"),
                ("GET", "/$namespaceinfo"),
                ("GET", "/$Resources/queues"),
            ):
                answer = await front.ask(method, path, b"<entry/>", query="api-version=2021-05", token=signed)
                assert answer.status == 401, path
        assert front.broker.catalogue.find("orders") is not None

    scenario(tmp_path, play, rules=lambda: (ROOT, scraper))


def test_rules_of_an_entity_are_valid_for_it_and_below_only(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        own = AuthorizationRule("own", SENDER.rights, "own-one", "own-two")
        await front.queue(authorization_rules=(own,))
        await front.queue("orders2")
        key = AuthorizationRule("own", SENDER.rights, "own-two", "own-two")
        for resource in ("orders", "ORDERS/", "orders/messages"):
            answer = await front.ask("POST", "/orders/messages", token=token(front.time, key, resource))
            assert answer.status == 201
        for path, resource in (
            ("/orders2/messages", "orders"),
            ("/orders/messages", ""),
            ("/orders2/messages", "orders2"),
            ("/orders/../orders2/messages", "orders"),
            ("/orders/%2e%2e/orders2/messages", "orders"),
        ):
            assert (await front.ask("POST", path, token=token(front.time, key, resource))).status == 401
        listening = await front.ask("POST", "/orders/messages/head", token=token(front.time, key, "orders"))
        assert (
            "Unauthorized access. 'Listen' claim(s) are required to perform this operation. "
            f"Resource: 'sb://{HOST}/orders'." in listening.text
        )

    scenario(tmp_path, play)


def test_the_key_of_an_entity_named_like_an_operation_opens_no_other(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        own = AuthorizationRule("own", SENDER.rights, "own-one", "own-two")
        await front.queue("orders")
        await front.queue("orders/messages", authorization_rules=(own,))
        signed = token(front.time, own, "orders/messages")
        assert (await front.ask("POST", "/orders/messages", token=signed)).status == 401
        assert (await front.ask("POST", "/orders/messages/messages", token=signed)).status == 201

    scenario(tmp_path, play)


def test_a_token_for_one_entity_opens_neither_metrics_nor_quarantine(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        for path in ("/metrics", "/$quarantine"):
            answer = await front.ask("GET", path, token=token(front.time, ROOT, "orders"))
            assert (answer.status, "InvalidAudience" in answer.text) == (401, True)

    scenario(tmp_path, play)


def test_two_authorization_headers_are_rejected(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        given = token(front.time).encode()
        answer = await front.ask("GET", "/metrics", b"", [(b"authorization", given)])
        assert (answer.status, "MalformedToken" in answer.text) == (401, True)

    scenario(tmp_path, play)


def test_a_token_for_another_host_is_rejected_if_the_host_is_known(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        assert (await front.ask("GET", "/metrics")).status == 401

    scenario(tmp_path, play, host="elsewhere.example.org")


def test_an_unreadable_key_file_rejects_everybody_and_reveals_no_path(tmp_path: Path) -> None:
    def rules() -> tuple[AuthorizationRule, ...]:
        raise KeyFileError("Key file '/secret/keys.json' is damaged.")

    async def play(front: Front) -> None:
        answer = await front.ask("GET", "/metrics")
        assert (answer.status, "secret" in answer.text) == (503, False)

    scenario(tmp_path, play, rules=rules)


def test_rules_that_change_are_seen_at_once(tmp_path: Path) -> None:
    current: list[tuple[AuthorizationRule, ...]] = [NAMESPACE]

    async def play(front: Front) -> None:
        assert (await front.ask("GET", "/metrics")).status == 200
        current[0] = (SENDER,)
        assert (await front.ask("GET", "/metrics")).status == 401

    scenario(tmp_path, play, rules=lambda: current[0])


def test_a_rule_reaches_what_belongs_to_its_entity_and_no_entity_of_a_longer_path(tmp_path: Path) -> None:
    """`orders/secret` is a separate queue: no key of `orders` opens it, whatever the token's audience."""
    own = AuthorizationRule("own", frozenset({Right.MANAGE}), "own-one", "own-two")

    async def play(front: Front) -> None:
        await front.queue("orders", authorization_rules=(own,))
        await front.queue("orders/secret")
        await front.topic("news", "all", authorization_rules=(own,))
        statuses = {}
        for resource in ("orders", "orders/secret", "orders/secret/messages", "news"):
            for path in ("orders", "orders/secret", "orders/new", "news", "news/subscriptions/all"):
                given = token(front.time, own, resource)
                answer = await front.ask("GET", f"/{path}/$messages", token=given)
                statuses[resource, path] = answer.status
        assert {pair for pair, status in statuses.items() if status != 401} == {
            ("orders", "orders"),
            ("news", "news"),
            ("news", "news/subscriptions/all"),
        }
        assert statuses["news", "news/subscriptions/all"] == statuses["orders", "orders"] == 200
        # The namespace's own rules sign for everything below a path, as in Azure.
        answer = await front.ask("GET", "/orders/secret/$messages", token=token(front.time, ROOT, "orders"))
        assert answer.status == 200
        # The key cannot create an entity below it either.
        body = (
            b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
            b'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
        )
        for rule, status in ((own, 401), (ROOT, 201)):
            given = token(front.time, rule, "orders")
            answer = await front.ask("PUT", "/orders/new", body, query="api-version=2021-05", token=given)
            assert answer.status == status

    scenario(tmp_path, play)


def test_only_some_refused_bodies_are_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that announce a body and do not send it get their response, and most of them are disconnected."""
    monkeypatch.setattr("oncebus.protocols.http.requests.MOST_LEAVING", 2)
    monkeypatch.setattr("oncebus.protocols.http.requests._PATIENCE_SECONDS", 0.2)

    async def play(front: Front) -> None:
        await front.queue()
        asked = (front.ask("POST", "/orders/messages", b"x", token=None, stalls=True) for _ in range(6))
        answers = await asyncio.gather(*asked)
        assert {answer.status for answer in answers} == {401}
        assert all(answer.headers["connection"] == "close" for answer in answers)
        assert not requests._LEAVING

    scenario(tmp_path, play)
