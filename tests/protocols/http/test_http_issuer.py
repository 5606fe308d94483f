"""Tokens of an identity provider over HTTP: messages, Atom, the Resource Manager, templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncebus.model.access import Issuer
from oncebus.protocols.signing_keys import SigningKeys
from oncebus.values.durations import SECOND
from tests.identity_provider import AUDIENCE, RULES, Provider, served_provider
from tests.protocols.http.http_front import Front, scenario

ARM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/oncebus"


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_rights_are_per_entity(tmp_path: Path) -> None:
    provider = Provider()

    async def play(front: Front) -> None:
        await front.queue("orders")
        await front.queue("orders/secret")

        async def statuses(*roles: str, **claims: Any) -> list[int]:
            given = bearer(provider.token(front.time.now, *roles, **claims))
            asked = [
                ("POST", "/orders/messages", ""),
                ("DELETE", "/orders/messages/head", "timeout=5"),
                ("POST", "/orders/secret/messages", ""),
                ("GET", "/orders", "api-version=2021-05"),
                ("GET", f"{ARM}/queues/orders", "api-version=2024-01-01"),
                ("GET", "/metrics", ""),
            ]
            return [(await front.ask(method, path, query=query, token=given)).status for method, path, query in asked]

        assert await statuses() == [401, 401, 401, 401, 403, 401]
        assert await statuses("orders.writer") == [201, 401, 401, 401, 403, 401]
        assert await statuses("orders.reader") == [401, 200, 401, 401, 403, 401]
        assert await statuses(realm_access={"roles": ["admin"]}) == [201, 200, 201, 200, 200, 200]

    scenario(tmp_path, play, issuer=provider.issuer())


def test_expired_and_foreign_tokens_are_refused(tmp_path: Path) -> None:
    provider = Provider()

    async def play(front: Front) -> None:
        await front.queue("orders")
        admin = {"roles": ["admin"]}
        wrong: list[dict[str, Any]] = [{"exp": front.time.now // SECOND}, {"aud": "x"}, {"iss": "x"}, {"kid": "rsa-2"}]
        for claims in wrong:
            given = provider.token(front.time.now, realm_access=admin, **claims)
            for method, path, query in (
                ("POST", "/orders/messages", ""),
                ("GET", "/orders", "api-version=2021-05"),
                ("GET", ARM, "api-version=2024-01-01"),
            ):
                answer = await front.ask(method, path, query=query, token=bearer(given))
                assert answer.status in (401, 403)
                assert given not in answer.text
        assert provider.asked == ["rsa-2"] * 3

    scenario(tmp_path, play, issuer=provider.issuer())


def test_a_rotated_key_is_fetched_when_a_token_names_it(tmp_path: Path) -> None:
    with served_provider() as provider:
        now = [0.0]
        keys = SigningKeys(provider.url, now=lambda: now[0])

        async def play(front: Front) -> None:
            await front.queue("orders")

            async def send(kid: str) -> int:
                given = provider.token(front.time.now, "orders.writer", kid=kid)
                return (await front.ask("POST", "/orders/messages", token=bearer(given))).status

            assert await send("rsa-1") == 201
            provider.kids = ("ec-1",)
            assert await send("ec-1") == 401
            now[0] += 10
            assert [await send("ec-1"), await send("rsa-1")] == [201, 401]
            await keys.stop()

        scenario(tmp_path, play, issuer=Issuer(provider.url, AUDIENCE, RULES, keys))
