from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest

from oncebus.model.access import AccessRefused, AuthorizationRule, Guard, Operation, Reason
from oncebus.model.access.issuer import BadClaimRules, ClaimRule, read_claim_rules, read_keys
from oncebus.model.access.jwts import LEEWAY, LONGEST_JWT
from oncebus.model.access.rights import Right, Rights
from oncebus.values.durations import HOUR, SECOND
from tests.identity_provider import AUDIENCE, Provider, algorithm_of, key, public_jwk
from tests.model.access.actors import HOST, NAMESPACE, NOW, token

LISTEN, SEND, MANAGE = Operation.RECEIVE, Operation.SEND, Operation.UPDATE_ENTITY
PATHS = ("orders", "orders/secret", "prices", "prices/subscriptions/a", "prices/subscriptions/b", "other")


class Entities:
    """The queues `orders` and `orders/secret`, and the topic `prices`."""

    def find(self, path: str) -> object | None:
        return path if path in ("orders", "orders/secret", "prices") else None

    def authorization_rules_of(self, path: str) -> list[AuthorizationRule]:  # noqa: ARG002
        return []

    def owner_of(self, path: str) -> str:
        parts = path.split("/")
        if parts[0] == "prices":
            return "prices"
        return "orders" if parts[0] == "orders" and parts[1:2] != ["secret"] else "/".join(parts[:2])

    def paths_with_key(self, name: str, key: str) -> list[str]:  # noqa: ARG002
        return []


def guard(provider: Provider | None, now: int = NOW) -> Guard:
    issuer = None if provider is None else provider.issuer()
    return Guard(lambda: NAMESPACE, Entities, lambda: now, HOST, issuer)


def permitted(given: str, provider: Provider, path: str = "") -> set[tuple[str, str]]:
    """Return the operations that a token permits, each with the path."""
    watched = guard(provider)
    grant, found = watched.verify(given, path), set()
    for operation in (SEND, LISTEN, MANAGE):
        for each in PATHS:
            try:
                watched.require(grant, operation, each)
            except AccessRefused:
                continue
            found.add((operation.right.value, each))
    return found


def refused(given: str, provider: Provider | None, now: int = NOW) -> Reason:
    with pytest.raises(AccessRefused) as caught:
        guard(provider, now).verify(given)
    # The reason in people's words holds nothing of the token.
    assert not any(len(part) > 20 and part in str(caught.value) for part in given.split("."))
    return caught.value.reason


@pytest.mark.parametrize("kid", ["rsa-1", "ec-1", "ed-1"])
def test_a_token_of_the_issuer_is_accepted(kid: str) -> None:
    provider = Provider(kids=(kid,))
    given = provider.token(NOW, "orders.writer")
    grant = guard(provider).verify(f"Bearer {given}")
    assert (grant.rule, grant.holder, grant.expires) == ("worker", provider.url, NOW + HOUR)
    assert given.rpartition(".")[2] not in repr(grant)


def test_claims_grant_rights_on_entities_and_their_parts() -> None:
    provider = Provider()

    def may(*roles: str, **claims: Any) -> set[tuple[str, str]]:
        return permitted(provider.token(NOW, *roles, **claims), provider)

    assert may() == set()
    assert may("orders.writer") == {("Send", "orders")}
    assert may("orders.writer", "orders.reader") == {("Send", "orders"), ("Listen", "orders")}
    assert may("prices.reader") == {("Listen", "prices/subscriptions/a")}
    everything = {(right.value, path) for right in Right for path in PATHS}
    assert may(realm_access={"roles": ["admin"]}) == everything
    assert may(**{"realm_access.roles": ["admin"]}) == everything
    assert may(scp="openid bus.send") == {("Send", path) for path in PATHS}
    # Values count as a whole, and only as texts.
    assert may(scp="bus.sender", realm_access="admin") == set()
    assert may("orders.writer.x", roles="xorders.writer") == set()
    assert may(roles={"orders.writer": True}) == set()


def test_a_grant_that_was_put_for_an_entity_is_for_that_one_alone() -> None:
    provider = Provider()
    given = provider.token(NOW, realm_access={"roles": ["admin"]})
    assert permitted(given, provider, "orders") == {
        (right.value, path) for right in Right for path in ("orders", "orders/secret")
    }


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "api://other"}, Reason.AUDIENCE),
        ({"aud": None}, Reason.AUDIENCE),
        ({"aud": [AUDIENCE.upper()]}, Reason.AUDIENCE),
        ({"aud": {AUDIENCE: 1}}, Reason.AUDIENCE),
        ({"iss": "https://login.example.org/other/"}, Reason.ISSUER),
        ({"iss": "https://login.example.org/tenant"}, Reason.ISSUER),
        ({"iss": None}, Reason.ISSUER),
        ({"exp": NOW // SECOND}, Reason.EXPIRED),
        ({"exp": -(10**30)}, Reason.EXPIRED),
        ({"exp": None}, Reason.MALFORMED),
        ({"exp": "1900000000"}, Reason.MALFORMED),
        ({"exp": True}, Reason.MALFORMED),
        ({"exp": float("inf")}, Reason.MALFORMED),
        ({"nbf": (NOW + LEEWAY) // SECOND + 1}, Reason.EARLY),
        ({"nbf": 10**400}, Reason.EARLY),
        ({"sub": None}, Reason.MALFORMED),
        ({"sub": "x" * 300}, Reason.MALFORMED),
    ],
)
def test_a_token_with_other_claims_is_refused(claims: dict[str, Any], reason: Reason) -> None:
    provider = Provider()
    assert refused(provider.token(NOW, **claims), provider) is reason


def test_times_and_audiences_that_are_just_good_enough() -> None:
    provider = Provider()
    for claims in (
        {"exp": NOW // SECOND + 1},
        {"exp": NOW / SECOND + 0.5 + 1},
        {"exp": 10**400},
        {"nbf": (NOW + LEEWAY) // SECOND},
        {"nbf": None},
        {"aud": ["other", AUDIENCE]},
        {"sub": None, "azp": "program"},
    ):
        assert guard(provider).verify(provider.token(NOW, **claims))


def test_only_a_key_of_the_issuer_signs() -> None:
    provider = Provider(kids=("rsa-1", "ec-1"))
    assert refused(provider.token(NOW, kid="rsa-2"), provider) is Reason.SIGNATURE
    stolen = forge({"alg": "RS256", "kid": "rsa-1"}, payload_of(provider.token(NOW)), b"x" * 256)
    assert refused(stolen, provider) is Reason.SIGNATURE
    # One key under the id of another.
    mixed = jwt.encode({"sub": "me"}, key("ec-1"), "ES256", headers={"kid": "rsa-1"})
    assert refused(mixed, provider) is Reason.SIGNATURE
    changed = provider.token(NOW).split(".")
    changed[1] = encode(json.dumps({**json.loads(decode(changed[1])), "roles": ["orders.writer"]}).encode())
    assert refused(".".join(changed), provider) is Reason.SIGNATURE


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
def test_a_token_without_a_signature_is_refused(algorithm: str) -> None:
    provider = Provider()
    claims = payload_of(provider.token(NOW, "orders.writer"))
    for kid in ("rsa-1", "RootManageSharedAccessKey"):
        assert refused(forge({"alg": algorithm, "kid": kid}, claims, b""), provider) is Reason.SIGNATURE


def test_a_public_key_is_not_a_secret() -> None:
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    provider = Provider()
    public = key("rsa-1").public_key()
    shapes = [
        public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo) for encoding in (Encoding.PEM, Encoding.DER)
    ]
    shapes += [json.dumps(public_jwk("rsa-1")).encode(), b""]
    for kid in ("rsa-1", "RootManageSharedAccessKey"):
        head = f"{encode(json.dumps({'alg': 'HS256', 'kid': kid}).encode())}.{payload_of(provider.token(NOW))}"
        for secret in shapes:
            forged = f"{head}.{encode(hmac.digest(secret, head.encode(), 'sha256'))}"
            assert refused(forged, provider) is Reason.SIGNATURE


def test_a_key_verifies_only_its_own_algorithms() -> None:
    provider = Provider()
    document = {"keys": [{**public_jwk("rsa-1"), "alg": "PS256"}]}
    assert read_keys(document)["rsa-1"].algorithms == ("PS256",)
    claims = jwt.decode(provider.token(NOW), options={"verify_signature": False})
    for algorithm in ("RS512", "PS256"):
        given = jwt.encode(claims, key("rsa-1"), algorithm, headers={"kid": "rsa-1"})
        assert guard(provider).verify(given)


def test_keys_that_cannot_verify_are_left_out() -> None:
    private = jwt.get_algorithm_by_name("RS256").to_jwk(key("rsa-1"), as_dict=True)
    entries: list[Any] = [
        public_jwk("rsa-1"),
        public_jwk("short-1"),
        {**private, "kid": "private"},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0", "kid": "shared"},
        {**public_jwk("ec-1"), "kid": "encrypts", "use": "enc"},
        {**public_jwk("ec-1"), "kid": "other", "alg": "RS256"},
        {**public_jwk("ec-1"), "kid": 7},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "EC", "kid": "broken too", "crv": "P-256", "x": "AA", "y": "AA"},
        {},
        "text",
        None,
    ]
    assert list(read_keys({"keys": entries})) == ["rsa-1"]
    documents: list[Any] = [None, [], {}, {"keys": None}, {"keys": {}}]
    assert [read_keys(document) for document in documents] == [{}] * 5


def test_what_is_no_token_is_malformed() -> None:
    provider = Provider()
    good = provider.token(NOW)
    head, payload, signature = good.split(".")
    deep = encode(b"[" * 3000 + b"]" * 3000)
    for bad in (
        "a.b.c",
        f"{head}.{payload}.{signature}A",
        f"{deep}.{payload}.{signature}",
        forge({"alg": "RS256"}, payload, b"x"),
        forge({"alg": "RS256", "kid": 1}, payload, b"x"),
        forge({"alg": "RS256", "kid": "x" * 300}, payload, b"x"),
        forge({"alg": 256, "kid": "rsa-1"}, payload, b"x"),
        forge(["alg"], payload, b"x"),
        provider.token(NOW, filling="x" * LONGEST_JWT),
    ):
        assert refused(bad, provider) in (Reason.MALFORMED, Reason.SIGNATURE)
    for content in (b"[]", b"1", b"{", b"\xff", b'{"exp": NaN}', b"[" * 5000):
        assert refused(signed(content), provider) is Reason.MALFORMED
    assert guard(provider).verify(provider.token(NOW, filling="x" * 8000))


def test_without_an_issuer_its_tokens_are_refused() -> None:
    assert refused(Provider().token(NOW), None) is Reason.ISSUER


def test_a_grant_ends_with_its_key() -> None:
    provider = Provider(kids=("rsa-1", "ec-1"))
    watched = guard(provider)
    old, new = (watched.verify(provider.token(NOW, kid=kid)) for kid in ("rsa-1", "ec-1"))
    provider.kids = ("ec-1",)
    assert watched.renew(old) is None
    assert watched.renew(new) is new
    # A shared access signature goes on as before.
    assert watched.renew(watched.verify(token(f"sb://{HOST}/orders"))) is not None


def test_only_a_token_of_the_issuer_needs_a_key() -> None:
    provider = Provider()
    watched = guard(provider)
    assert watched.unknown_key(provider.token(NOW, kid="rsa-2")) == "rsa-2"
    assert watched.unknown_key(f"Bearer {provider.token(NOW, kid='rsa-2')}") == "rsa-2"
    own = jwt.encode({}, b"x" * 32, "HS256", headers={"kid": "sender"})
    for given in (provider.token(NOW), own, token(f"sb://{HOST}/orders"), "", None, "a.b.c"):
        assert watched.unknown_key(given) is None
    assert guard(None).unknown_key(provider.token(NOW, kid="rsa-2")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "It has 0 tables [[grant]]. Write 1 to 1000."),
        ("grant = 1", "It has grant where only tables [[grant]] belong."),
        ("[role]\nclaim = 'x'", "It has role where only tables [[grant]] belong."),
        ("[[grant]]\nclaim = 'x'", "The value of [[grant]] number 1 has value None. Not a text."),
        (
            "[[grant]]\nclaim='x'\nvalue='y'\nrights=['Write']",
            "The rights of [[grant]] number 1 have value ['Write']. Not a list of Send, Listen, Manage.",
        ),
        (
            "[[grant]]\nclaim='x'\nvalue='y'\nrights=['Send']\nentity=''",
            "The entity of [[grant]] number 1 has value ''. Not the path of an entity.",
        ),
        (
            "[[grant]]\nclaim='x'\nvalue='y'\nrights=['Send']\nqueue='a'",
            "[[grant]] number 1 has 'queue'. Known are claim, value, rights and entity.",
        ),
    ],
)
def test_bad_claim_rules_are_named(text: str, message: str) -> None:
    with pytest.raises(BadClaimRules) as caught:
        read_claim_rules(text)
    assert str(caught.value) == message
    with pytest.raises(BadClaimRules, match="It is not TOML: "):
        read_claim_rules("[[grant")


def test_claim_rules_are_read() -> None:
    text = "[[grant]]\nclaim='https://x.org/roles'\nvalue='w'\nrights=['Manage']\nentity='/Orders/'"
    assert read_claim_rules(text) == (ClaimRule("https://x.org/roles", "w", Rights([Right.MANAGE]), "orders"),)


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def payload_of(given: str) -> str:
    return given.split(".")[1]


def forge(header: Any, payload: str, signature: bytes) -> str:
    return f"{encode(json.dumps(header).encode())}.{payload}.{encode(signature)}"


def signed(content: bytes, kid: str = "rsa-1") -> str:
    return jwt.PyJWS().encode(content, key(kid), algorithm_of(kid), headers={"kid": kid})
