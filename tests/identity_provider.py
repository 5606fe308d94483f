"""An identity provider in the test's own process: real keys, real tokens, and a server for its keys on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from oncebus.model.access.issuer import ClaimRule, Issuer, IssuerKey, read_claim_rules, read_keys
from oncebus.values.durations import SECOND

AUDIENCE = "api://oncebus"
CLAIMS = """
[[grant]]
claim = "roles"
value = "orders.writer"
rights = ["Send"]
entity = "orders"

[[grant]]
claim = "roles"
value = "orders.reader"
rights = ["Listen"]
entity = "Orders"

[[grant]]
claim = "roles"
value = "prices.reader"
rights = ["Listen"]
entity = "prices/subscriptions/a"

[[grant]]
claim = "realm_access.roles"
value = "admin"
rights = ["Manage"]

[[grant]]
claim = "scp"
value = "bus.send"
rights = ["Send"]
"""
RULES: tuple[ClaimRule, ...] = read_claim_rules(CLAIMS)


@cache
def key(kid: str) -> Any:
    """Return a private key; its kind is in its name."""
    kind = kid.partition("-")[0]
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    if kind == "short":
        return rsa.generate_private_key(65537, 1024)
    return ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else ed25519.Ed25519PrivateKey.generate()


def algorithm_of(kid: str) -> str:
    return {"rsa": "RS256", "short": "RS256", "ec": "ES256", "ed": "EdDSA"}[kid.partition("-")[0]]


def public_jwk(kid: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(algorithm_of(kid))
    return {**algorithm.to_jwk(key(kid).public_key(), as_dict=True), "kid": kid, "use": "sig"}


@dataclass
class Provider:
    """Signs tokens. `kids` are its keys, the newest first. It is a `KeySource` without a network."""

    url: str = "https://login.example.org/tenant/"
    kids: tuple[str, ...] = ("rsa-1",)
    asked: list[str] = field(default_factory=list)

    @property
    def known(self) -> dict[str, IssuerKey]:
        return read_keys(self.key_set())

    async def look_for(self, kid: str) -> None:
        self.asked.append(kid)

    def issuer(self) -> Issuer:
        return Issuer(self.url, AUDIENCE, RULES, self)

    def key_set(self) -> dict[str, Any]:
        return {"keys": [public_jwk(kid) for kid in self.kids]}

    def token(self, now: int, *roles: str, kid: str | None = None, **claims: Any) -> str:
        """Return a token for an hour. A claim of None is left out."""
        seconds = now // SECOND
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "worker", "nbf": seconds, "exp": seconds + 3600}
        given = {**usual, "roles": list(roles), **claims}
        chosen = kid or self.kids[0]
        return jwt.encode(
            {name: value for name, value in given.items() if value is not None},
            key(chosen),
            algorithm_of(chosen),
            headers={"kid": chosen},
        )


@dataclass
class ServedProvider(Provider):
    """A provider with a server. `paths` are the requests so far; `answers` replaces what it answers at a path."""

    paths: list[str] = field(default_factory=list)
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)


@contextmanager
def served_provider(**given: Any) -> Iterator[ServedProvider]:
    """Run a provider on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.paths.append(self.path)
            if self.path in provider.answers:
                provider.answers[self.path](self)
            elif self.path == "/tenant/.well-known/openid-configuration":
                base = provider.url.removesuffix("/")
                answer(self, {"issuer": provider.url, "jwks_uri": f"{base}/keys"})
            elif self.path == "/tenant/keys":
                answer(self, provider.key_set())
            else:
                answer(self, {}, 404)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = ServedProvider(f"http://127.0.0.1:{server.server_port}/tenant/", **given)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


def answer(handler: BaseHTTPRequestHandler, content: Any, status: int = 200, **headers: str) -> None:
    """Send an answer; content that is not bytes becomes JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
