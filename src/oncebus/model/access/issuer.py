"""Tokens of an identity provider: its public keys, and what the claims of its tokens permit.

Which claims grant which rights is a list of `ClaimRule`, in a file in TOML:

    [[grant]]
    claim = "roles"                 the name of a claim; realm_access.roles for a claim within a claim
    value = "orders.writer"         a text that it must have or contain
    rights = ["Send"]
    entity = "orders"               without it, the rights are on the whole namespace
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from oncebus.model.access.authorization import Grant, OwnerOf
from oncebus.model.access.jwts import Claims, WrittenJwt, check_times, verified_claims
from oncebus.model.access.refusal import (
    bad_signature,
    malformed_token,
    no_issuer,
    wrong_audience,
    wrong_issuer,
)
from oncebus.model.access.rights import Right, Rights
from oncebus.model.access.scopes import BadScope, Scope, path_of
from oncebus.values.errors import OncebusError, clip

MOST_KEYS = 100
MOST_CLAIM_RULES = 1000
_LEAST_RSA_BITS = 2048
_LONGEST_SUBJECT = 256
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
# The claims that name the caller, best first. `sub` may be missing in tokens of programs.
_SUBJECTS = ("sub", "oid", "azp", "appid", "client_id")
# Claims whose text is a list of words, with blanks between them.
_WORDS = ("scope", "scp")


class BadClaimRules(OncebusError, ValueError):
    """A list of claim rules is invalid."""


@dataclass(frozen=True)
class IssuerKey:
    """A public key of an issuer. It verifies only these algorithms, whatever the header of a token says."""

    algorithms: tuple[str, ...]
    fingerprint: str
    key: Any = field(repr=False, compare=False)
    """The key as `cryptography` has it."""


class KeySource(Protocol):
    """Where the keys of an issuer come from."""

    @property
    def known(self) -> Mapping[str, IssuerKey]:
        """Return the current keys by their ids."""

    def look_for(self, kid: str) -> Awaitable[None]:
        """Ask the issuer for its keys, unless that was done just now. Does not raise if it does not answer."""


@dataclass(frozen=True)
class ClaimRule:
    """Gives rights on an entity to tokens that have a value in a claim. The path is empty for the namespace."""

    claim: str
    value: str
    rights: Rights
    entity: str = ""

    def applies_to(self, claims: Claims) -> bool:
        """Return whether the claims have the value."""
        found = _find(claims, self.claim)
        if isinstance(found, str) and self.claim in _WORDS:
            return self.value in found.split()
        return found == self.value if isinstance(found, str) else isinstance(found, list) and self.value in found


@dataclass(frozen=True)
class ClaimGrant(Grant):
    """The permissions of a token of an identity provider. `rule` is its subject, `key` the fingerprint of its key.

    `holder` is the issuer, so that no subject is taken for the rule of an entity.
    """

    kid: str = field(default="", kw_only=True)
    roles: tuple[tuple[str, Rights], ...] = field(default=(), kw_only=True)
    """Paths of entities with the rights on each; the path of the namespace is empty."""

    def covers(self, path: str) -> bool:
        """See `Grant`."""
        try:
            return self.scope.covers(path_of(path))
        except BadScope:
            return False

    def rights_on(self, path: str) -> frozenset[Right]:
        """See `Grant`. The rights on an entity are those on its parts too, but not on an entity with a longer path."""
        segments = path_of(path)
        return frozenset(
            right
            for entity, rights in self.roles
            if not entity or (segments[: len(own := path_of(entity))] == own and self._have_one_owner(entity, segments))
            for right in rights
        )

    def _have_one_owner(self, entity: str, segments: tuple[str, ...]) -> bool:
        return self.owner_of is None or self.owner_of("/".join(segments)) == self.owner_of(entity)


@dataclass(frozen=True)
class Issuer:
    """An identity provider that we trust: its address, the audience of tokens for us, and what its claims permit."""

    url: str
    audience: str
    rules: tuple[ClaimRule, ...]
    keys: KeySource

    def verify(self, token: WrittenJwt, *, now: int, scope: Scope, owner_of: OwnerOf | None = None) -> ClaimGrant:
        """Return the grant of a token within a scope, or raise `AccessRefused`. The signature comes first."""
        key = self.keys.known.get(token.kid)
        if key is None:
            raise bad_signature()
        claims = verified_claims(token, key.key, key.algorithms)
        expires = check_times(claims, now)
        if claims.get("iss") != self.url:
            raise wrong_issuer()
        audience = claims.get("aud")
        if self.audience != audience and not (isinstance(audience, list) and self.audience in audience):
            raise wrong_audience()
        roles = tuple((rule.entity, rule.rights) for rule in self.rules if rule.applies_to(claims))
        return ClaimGrant(
            _subject(claims),
            frozenset(right for _, rights in roles for right in rights),
            expires,
            scope,
            key.fingerprint,
            holder=self.url,
            owner_of=owner_of,
            kid=token.kid,
            roles=roles,
        )

    def renew(self, grant: ClaimGrant) -> ClaimGrant | None:
        """Return the grant; None if the issuer no longer has the key that signed its token."""
        key = self.keys.known.get(grant.kid)
        return grant if key is not None and key.fingerprint == grant.key else None


def verify_foreign(
    token: WrittenJwt, issuer: Issuer | None, *, now: int, scope: Scope, owner_of: OwnerOf | None = None
) -> ClaimGrant:
    """Return the grant of a token that is not our own, or raise `AccessRefused`."""
    if issuer is None:
        raise no_issuer()
    return issuer.verify(token, now=now, scope=scope, owner_of=owner_of)


def read_keys(document: Any) -> dict[str, IssuerKey]:
    """Return the keys of a JSON Web Key Set that can verify tokens, by their ids. All others are left out."""
    entries = document.get("keys") if isinstance(document, dict) else None
    found: dict[str, IssuerKey] = {}
    for entry in entries[:MOST_KEYS] if isinstance(entries, list) else ():
        kid = entry.get("kid") if isinstance(entry, dict) else None
        if isinstance(kid, str) and entry.get("use", "sig") == "sig" and (key := _read_key(entry)) is not None:
            found[kid] = key
    return found


def read_claim_rules(text: str) -> tuple[ClaimRule, ...]:
    """Return the claim rules of a file. Raises `BadClaimRules` with a text that names the entry and the value."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadClaimRules(f"It is not TOML: {' '.join(str(error).split())}.") from None
    entries = document.pop("grant", [])
    if document or not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise BadClaimRules(f"It has {', '.join(document) or 'grant'} where only tables [[grant]] belong.")
    if not 0 < len(entries) <= MOST_CLAIM_RULES:
        raise BadClaimRules(f"It has {len(entries)} tables [[grant]]. Write 1 to {MOST_CLAIM_RULES}.")
    return tuple(_read_rule(entry, number) for number, entry in enumerate(entries, start=1))


def _read_rule(entry: dict[str, Any], number: int) -> ClaimRule:
    where = f"[[grant]] number {number}"
    if unknown := entry.keys() - {"claim", "value", "rights", "entity"}:
        raise BadClaimRules(f"{where} has {clip(min(unknown))}. Known are claim, value, rights and entity.")
    for name in ("claim", "value"):
        if not isinstance(entry.get(name), str) or not entry[name]:
            raise BadClaimRules(f"The {name} of {where} has value {clip(entry.get(name))}. Not a text.")
    rights = entry.get("rights")
    if not isinstance(rights, list) or not rights or not set(map(str, rights)) <= set(Right):
        raise BadClaimRules(f"The rights of {where} have value {clip(rights)}. Not a list of {', '.join(Right)}.")
    entity = entry.get("entity", "")
    try:
        path = path_of(entity) if isinstance(entity, str) and (entity or "entity" not in entry) else None
    except BadScope:
        path = None
    if path is None or ("entity" in entry and not path):
        raise BadClaimRules(f"The entity of {where} has value {clip(entity)}. Not the path of an entity.")
    return ClaimRule(entry["claim"], entry["value"], Rights(Right(right) for right in rights), "/".join(path))


def _read_key(entry: dict[str, Any]) -> IssuerKey | None:
    # Imported late, as in `oncebus.model.access.jwts`.
    import jwt
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        key = jwt.PyJWK(entry).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        algorithms: Iterable[str] = _RSA
    elif isinstance(key, EllipticCurvePublicKey):
        algorithms = _CURVES.get(key.curve.name, ())
    elif isinstance(key, Ed25519PublicKey):
        algorithms = ("EdDSA",)
    else:
        # Also a private or a symmetric key, which nobody should publish.
        return None
    algorithms = tuple(each for each in algorithms if entry.get("alg", each) == each)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return IssuerKey(algorithms, hashlib.sha256(der).hexdigest(), key) if algorithms else None


def _find(claims: Claims, name: str) -> object:
    """Return a claim, or the one that a name with periods leads to. The whole name comes first: it may be a URL."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _subject(claims: Claims) -> str:
    for name in _SUBJECTS:
        if isinstance(subject := claims.get(name), str) and 0 < len(subject) <= _LONGEST_SUBJECT:
            return subject
    raise malformed_token()
