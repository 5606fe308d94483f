"""The sign-in endpoint: a rule and its key for a token, and the documents that lead there."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest

from oncebus.model.access import AccessRefused, AuthorizationRule, WhichKey
from oncebus.model.access.jwts import make_jwt, read_jwt, verify_own
from oncebus.values.durations import HOUR, SECOND
from tests.model.access.actors import NOW
from tests.protocols.http.http_front import HOST, LISTENER, NAMESPACE, ROOT, Answer, Front, scenario

ARM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/oncebus"
VERSION = "api-version=2024-01-01"
TOKEN_PATHS = (
    "/adfs/oauth2/token",
    "/adfs/oauth2/token/",
    "/my-tenant/oauth2/v2.0/token",
    "/my-tenant/oauth2/token",
    "/adfs/my-tenant/oauth2/v2.0/token",
)


async def ask(front: Front, path: str = TOKEN_PATHS[0], /, headers: Any = None, **fields: str) -> Answer:
    given = {"grant_type": "client_credentials", **fields}
    body = urlencode({name: value for name, value in given.items() if value}).encode()
    return await front.ask("POST", path, body, headers, token=None)


async def sign_in(front: Front, rule: AuthorizationRule = ROOT, **fields: str) -> str:
    answer = await ask(front, client_id=rule.name, client_secret=rule.primary_key, **fields)
    assert answer.status == 200, answer.text
    return str(answer.json["access_token"])


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


async def status(front: Front, token: str, method: str = "GET", path: str = ARM, query: str = VERSION) -> int:
    return (await front.ask(method, path, query=query, token=f"Bearer {token}")).status


def test_a_rule_and_either_of_its_keys_get_a_token(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for path in TOKEN_PATHS:
            for key in (ROOT.primary_key, ROOT.secondary_key):
                answer = await ask(front, path, client_id=ROOT.name, client_secret=key, scope="https://x/.default")
                assert answer.status == 200
                assert (answer.json["token_type"], answer.json["expires_in"]) == ("Bearer", 3600)
                assert answer.headers["cache-control"] == "no-store"
                assert await status(front, answer.json["access_token"]) == 200
        claims = claims_of(await sign_in(front, resource="https://management"))
        assert (claims["aud"], claims["appid"]) == ("https://management", ROOT.name)
        assert claims["iss"] == f"http://{HOST}/adfs"
        assert {"oid", "tid", "sub", "iat", "nbf", "exp"} <= claims.keys()
        # No key, and nothing that leads to one.
        assert ROOT.primary_key not in json.dumps(claims)

    scenario(tmp_path, play)


def test_the_token_has_the_rights_of_the_rule(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("orders")
        listener = await sign_in(front, LISTENER)
        assert await status(front, listener) == 403
        assert await status(front, listener, "POST", "/orders/messages", "") == 401
        assert await status(front, listener, "DELETE", "/orders/messages/head", "timeout=0") == 204
        # What surrounds the namespace is no secret, but the namespace is.
        assert await status(front, listener, path="/subscriptions", query="api-version=2022-12-01") == 200
        assert await status(front, listener, path="/subscriptions/s/resources", query=VERSION) == 403
        assert await status(front, await sign_in(front), "GET", "/orders", "api-version=2021-05") == 200

    scenario(tmp_path, play)


def test_a_token_ends_after_an_hour_and_with_its_key(tmp_path: Path) -> None:
    rules = list(NAMESPACE)

    async def play(front: Front) -> None:
        token = await sign_in(front)
        front.time.advance(3599)
        assert await status(front, token) == 200
        front.time.advance(1)
        assert await status(front, token) == 401
        token = await sign_in(front)
        rules[0] = ROOT.rotate_key(WhichKey.SECONDARY)
        assert await status(front, token) == 200
        rules[0] = rules[0].rotate_key(WhichKey.PRIMARY)
        assert await status(front, token) == 401
        assert (await ask(front, client_id=ROOT.name, client_secret=ROOT.primary_key)).status == 401

    scenario(tmp_path, play, rules=lambda: tuple(rules))


def test_nobody_else_gets_a_token(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        errors = []
        for fields in (
            {"client_id": ROOT.name, "client_secret": "wrong"},
            {"client_id": ROOT.name, "client_secret": LISTENER.primary_key},
            {"client_id": ROOT.name.lower(), "client_secret": ROOT.primary_key},
            {"client_id": "nobody", "client_secret": "x"},
            {"client_id": "nobody"},
            {"client_id": ROOT.name},
            {},
            {"client_id": ROOT.name, "client_secret": "\ud7ff\u2028é"},
        ):
            answer = await ask(front, **fields)
            errors.append((answer.status, answer.json["error"], answer.json["error_description"]))
        # The same words, whether the rule or the key is wrong.
        assert len(set(errors)) == 1
        assert errors[0][:2] == (401, "invalid_client")

    scenario(tmp_path, play)


def test_requests_that_are_wrong(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        good = {"client_id": ROOT.name, "client_secret": ROOT.primary_key}
        for kind in ("password", "", "urn:ietf:params:oauth:grant-type:device_code"):
            answer = await ask(front, **{**good, "grant_type": kind})
            assert (answer.status, answer.json["error"]) == (400, "unsupported_grant_type")
        for body in (b"\xff=1", b"client_id=a&client_id=b", b"&".join(b"a%d=1" % at for at in range(60)), b"a=%ff"):
            answer = await front.ask("POST", TOKEN_PATHS[0], body, token=None)
            assert (answer.status, answer.json["error"]) == (400, "invalid_request")
        answer = await front.ask("POST", TOKEN_PATHS[0], b"x" * 20_000, token=None)
        assert answer.status == 413
        answer = await ask(front, headers={"authorization": "Basic !"}, **good)
        assert answer.status == 400

    scenario(tmp_path, play)


def test_the_secret_may_be_in_the_header(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        basic = base64.b64encode(f"{ROOT.name}:{ROOT.primary_key}".encode()).decode()
        assert (await ask(front, headers={"authorization": f"Basic {basic}"})).status == 200
        wrong = base64.b64encode(f"{ROOT.name}:no".encode()).decode()
        assert (await ask(front, headers={"authorization": f"Basic {wrong}"})).status == 401

    scenario(tmp_path, play)


def test_a_forged_token_is_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        token = await sign_in(front, LISTENER)
        claims = claims_of(token)
        for secret in (b"\0" * 32, ROOT.primary_key.encode().ljust(32, b"\0"), ROOT.name.encode() * 2):
            forged = jwt.encode(claims, secret, "HS256", headers={"kid": ROOT.name})
            assert await status(front, forged) == 401
        head, payload, signature = token.split(".")
        other = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": ROOT.name}).encode()).rstrip(b"=").decode()
        for forged in (f"{other}.{payload}.{signature}", f"{head}.{payload}.", f"{head}.{head}.{signature}"):
            assert await status(front, forged) == 401

    scenario(tmp_path, play)


def test_a_token_is_for_the_host_that_tokens_must_have() -> None:
    rules = list(NAMESPACE)
    for host, is_good in (
        ("bus.example.org", True),
        ("BUS.example.org:5300", True),
        ("localhost", True),
        ("x.org", False),
    ):
        claims = {"iss": f"https://{host}/adfs", "exp": NOW // SECOND + 1}
        given = read_jwt(make_jwt(ROOT.name, ROOT.primary_key, claims))
        if is_good:
            assert verify_own(given, rules, now=NOW, host=HOST).rights == ROOT.rights
        else:
            with pytest.raises(AccessRefused):
                verify_own(given, rules, now=NOW, host=HOST)
        assert verify_own(given, rules, now=NOW, host=None)
    for bad in ({"exp": NOW // SECOND + 1}, {"iss": "http://", "exp": NOW // SECOND + 1}, {"iss": f"https://{HOST}/"}):
        with pytest.raises(AccessRefused):
            verify_own(read_jwt(make_jwt(ROOT.name, ROOT.primary_key, bad)), rules, now=NOW, host=None)


def test_the_documents_that_tools_read_first(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        async def get(path: str, query: str = "") -> Any:
            answer = await front.ask("GET", path, query=query, token=None)
            assert answer.status == 200
            return answer.json

        found = await get("/adfs/.well-known/openid-configuration")
        assert found["token_endpoint"] == f"http://{HOST}/adfs/oauth2/token"
        found = await get("/tenant/v2.0/.well-known/openid-configuration")
        assert found["token_endpoint"] == f"http://{HOST}/tenant/oauth2/v2.0/token"
        assert await get("/adfs/discovery/keys") == {"keys": []}
        found = await get("/metadata/endpoints", "api-version=2022-09-01")
        assert found["authentication"] == {
            "loginEndpoint": f"http://{HOST}/adfs",
            "audiences": [f"http://{HOST}"],
            "tenant": "00000000-0000-0000-0000-000000000000",
            "identityProvider": "AAD",
        }
        assert found["resourceManager"] == f"http://{HOST}"

    scenario(tmp_path, play)


def test_entities_may_have_these_paths(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for name in ("adfs/oauth2/token", "subscriptions", "tenants"):
            await front.queue(name)
            assert (await front.send(name, b"x")).status == 201
            answer = await front.ask("GET", f"/{name}", query="api-version=2021-05")
            assert b"QueueDescription" in answer.body
        assert (await front.ask("GET", "/tenants", query="api-version=2022-12-01")).json["value"]

    scenario(tmp_path, play)


def test_a_token_of_an_hour_is_not_accepted_before_it_was_made(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        token = await sign_in(front)
        assert claims_of(token)["exp"] == front.time.now // SECOND + HOUR // SECOND
        front.time.now -= HOUR
        assert await status(front, token) == 401

    scenario(tmp_path, play)
