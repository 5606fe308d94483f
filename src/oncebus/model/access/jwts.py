"""JSON Web Tokens: reads them, and makes and verifies those of our own sign-in endpoint.

There are two kinds, and the algorithm in the header tells them apart before anything else is looked at:

HS256               made by the sign-in endpoint for a rule of the namespace. `kid` is the name of the rule, and the
                    secret is derived from one of its keys. So it ends like a shared access signature of that key
all others          made by the identity provider. `kid` names one of its public keys: `oncebus.model.access.issuer`

No token can pass for the other kind: a public key is never a secret, and a secret is never a public key.

`jwt` is imported when it is first used: it takes longer to load than all commands together, and few brokers need it.
"""

from __future__ import annotations

import base64
import hmac
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from oncebus.model.access.authorization import Grant
from oncebus.model.access.authorization_rule import KEY_BYTES, AuthorizationRule
from oncebus.model.access.refusal import (
    AccessRefused,
    bad_signature,
    early_token,
    expired_token,
    malformed_token,
    wrong_audience,
)
from oncebus.model.access.scopes import BadScope, Scope, same_host, scope_of
from oncebus.model.access.tokens import LATEST
from oncebus.values.durations import MINUTE, SECOND
from oncebus.values.hosts import is_this_machine

LONGEST_JWT = 16 * 1024
OWN_ALGORITHM = "HS256"
LEEWAY = MINUTE
"""How far the clock of an issuer may be ahead of ours. The end of a token is exact."""

_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_LONGEST_KID = 256
# What the secret of our tokens is for: no shared access signature can be a signature of such a token.
_PURPOSE = b"oncebus sign-in token"
_DUMMY_KEY = base64.b64encode(bytes(KEY_BYTES)).decode("ascii")

Claims = dict[str, Any]


@dataclass(frozen=True)
class WrittenJwt:
    """A token that is not verified: what its header says, and the whole text."""

    algorithm: str
    kid: str
    text: str = field(repr=False)

    @property
    def is_own(self) -> bool:
        """Return whether it claims to be of our own sign-in endpoint."""
        return self.algorithm == OWN_ALGORITHM


def looks_like_jwt(token: str) -> bool:
    """Return whether a text has the form of a JSON Web Token."""
    return _JWT.fullmatch(token) is not None


def read_jwt(token: str) -> WrittenJwt:
    """Parse the header of a token. Raises `AccessRefused` with the reason MALFORMED."""
    if len(token) > LONGEST_JWT or not looks_like_jwt(token):
        raise malformed_token()
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError:
        raise malformed_token() from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(kid, str) or not 0 < len(kid) <= _LONGEST_KID:
        raise malformed_token()
    return WrittenJwt(algorithm, kid, token)


def verified_claims(token: WrittenJwt, key: Any, algorithms: tuple[str, ...]) -> Claims:
    """Return the claims of a token that this key signed with one of these algorithms. Raises `AccessRefused`."""
    import jwt

    try:
        payload = jwt.PyJWS().decode(token.text, key, algorithms=list(algorithms))
    except jwt.PyJWTError:
        raise bad_signature() from None
    try:
        claims = json.loads(payload, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise malformed_token() from None
    if not isinstance(claims, dict):
        raise malformed_token()
    return claims


def check_times(claims: Claims, now: int) -> int:
    """Return when a token ends. Raises `AccessRefused` unless it has begun and not ended."""
    expires, begins = _time(claims, "exp"), _time(claims, "nbf")
    if expires is None:
        raise malformed_token()
    if now >= expires:
        raise expired_token(expires)
    if begins is not None and now < begins - LEEWAY:
        raise early_token(begins)
    return expires


def make_jwt(rule: str, key: str, claims: Claims) -> str:
    """Return a token of our own for a rule of the namespace, signed with one of its keys."""
    import jwt

    return jwt.encode(claims, _secret(key), OWN_ALGORITHM, headers={"kid": rule})


def verify_own(token: WrittenJwt, namespace_rules: list[AuthorizationRule], *, now: int, host: str | None) -> Grant:
    """Return the grant of a token of our own, or raise `AccessRefused`.

    It is for the whole namespace. With `host`, its issuer must have that host, or be this machine.
    """
    named: list[AuthorizationRule | None] = [rule for rule in namespace_rules if rule.name == token.kid]
    found: tuple[AuthorizationRule, str, Claims] | None = None
    for rule in named or [None]:
        # An unknown rule takes as long as a wrong key.
        for key in (_DUMMY_KEY, _DUMMY_KEY) if rule is None else (rule.primary_key, rule.secondary_key):
            try:
                claims = verified_claims(token, _secret(key), (OWN_ALGORITHM,))
            except AccessRefused:
                continue
            if rule is not None:
                found = rule, key, claims
    if found is None:
        raise bad_signature()
    rule, key, claims = found
    expires = check_times(claims, now)
    try:
        issuer = scope_of(claims["iss"])
    except (KeyError, TypeError, AttributeError, BadScope):
        raise malformed_token() from None
    if host is not None and not same_host(issuer.host, host) and not is_this_machine(issuer.host):
        raise wrong_audience()
    scope = Scope(issuer.host, ())
    return Grant(rule.name, rule.rights, expires, scope, key, only_metrics=rule.only_metrics)


def _secret(key: str) -> bytes:
    return hmac.digest(key.encode(), _PURPOSE, "sha256")


def _time(claims: Claims, name: str) -> int | None:
    """Return a time in the claims, in microseconds since 1970; None if it is not there. Raises `AccessRefused`."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise malformed_token()
    if isinstance(value, float) and not math.isfinite(value):
        raise malformed_token()
    return min(max(int(value), 0) * SECOND, LATEST)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
