"""Checks the token of a request against the authorization rules of the namespace and of its entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from oncebus.model.access.authorization import Grant, renew, verify
from oncebus.model.access.authorization_rule import AuthorizationRule, rule_with_key
from oncebus.model.access.issuer import ClaimGrant, Issuer, verify_foreign
from oncebus.model.access.jwts import looks_like_jwt, read_jwt, verify_own
from oncebus.model.access.refusal import AccessRefused, Reason, wrong_audience
from oncebus.model.access.rights import Operation
from oncebus.model.access.scopes import BadScope, Scope, path_of

_BEARER = "bearer "

NamespaceRules = Callable[[], Iterable[AuthorizationRule]]


class Entities(Protocol):
    """The part of a catalogue that the guard needs. Paths may have any letter case."""

    def find(self, path: str) -> object | None:
        """Return the entity at a path, or None."""

    def authorization_rules_of(self, path: str) -> Sequence[AuthorizationRule]:
        """Return the rules of the entity at a path. Empty if there is no such entity."""

    def owner_of(self, path: str) -> str:
        """Return the path of the queue or topic that a path belongs to.

        Returns the path itself if it belongs to none.
        """

    def paths_with_key(self, name: str, key: str) -> Sequence[str]:
        """Return the paths of the queues and topics that have this rule with this key."""


class Guard:
    """Verifies tokens and checks their permissions. `now` returns microseconds since 1970."""

    def __init__(
        self,
        namespace_rules: NamespaceRules,
        entities: Callable[[], Entities],
        now: Callable[[], int],
        host: str | None,
        issuer: Issuer | None = None,
    ) -> None:
        self._namespace_rules = namespace_rules
        self._entities = entities
        self._now = now
        self._host = host
        self._issuer = issuer

    def unknown_key(self, token: str | None) -> str | None:
        """Return the id of a key that the identity provider must be asked for before `verify`; None if there is none.

        `find_key` asks for it.
        """
        bare = _bare(token)
        if self._issuer is None or bare is None or not looks_like_jwt(bare):
            return None
        try:
            given = read_jwt(bare)
        except AccessRefused:
            return None
        return None if given.is_own or given.kid in self._issuer.keys.known else given.kid

    async def find_key(self, kid: str) -> None:
        """Ask the identity provider for a key that `unknown_key` has returned. `verify` tells whether it was found."""
        if self._issuer is not None:
            await self._issuer.keys.look_for(kid)

    def verify(self, token: str | None, path: str = "") -> Grant:
        """Return the grant of a token, or raise `AccessRefused`, which reveals nothing about the namespace.

        The token may follow the word Bearer: some clients can only send it that way. A token of an identity provider
        names no resource: its grant is for the entity at `path`, or for the whole namespace.
        """
        bare = _bare(token)
        if bare is not None and looks_like_jwt(bare):
            return self._verify_jwt(bare, path)
        return verify(
            bare,
            now=self._now(),
            namespace_rules=self._namespace_rules(),
            rules_of=self._entities().authorization_rules_of,
            owner_of=self._owner_of,
            host=self._host,
        )

    def _verify_jwt(self, token: str, path: str) -> Grant:
        given, now = read_jwt(token), self._now()
        if given.is_own:
            return verify_own(given, list(self._namespace_rules()), now=now, host=self._host)
        try:
            scope = Scope(self._host or "localhost", path_of(path))
        except BadScope:
            raise wrong_audience() from None
        return verify_foreign(given, self._issuer, now=now, scope=scope, owner_of=self._owner_of)

    def _owner_of(self, path: str) -> str:
        # Called again and again while a connection lasts, so it must use the current catalogue each time.
        return self._entities().owner_of(path)

    def renew(self, grant: Grant, namespace_rules: Iterable[AuthorizationRule] | None = None) -> Grant | None:
        """Return the grant under the current rules; None if the key that signed its token is no longer valid.

        A caller that renews many grants passes the rules of the namespace to avoid a lookup for each grant.
        """
        if isinstance(grant, ClaimGrant):
            return None if self._issuer is None else self._issuer.renew(grant)
        return renew(
            grant,
            namespace_rules=self._namespace_rules() if namespace_rules is None else namespace_rules,
            rules_of=self._entities().authorization_rules_of,
        )

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """Return the current rules of the namespace."""
        return tuple(self._namespace_rules())

    def rule_of(self, name: str, key: str) -> AuthorizationRule | None:
        """Return the rule of the namespace with this name and key; None if there is none, after the same work."""
        return rule_with_key(self._namespace_rules(), name, key)

    def paths_with(self, rule: str, key: str) -> list[str]:
        """Return the paths of the queues and topics that have this rule with this key."""
        return list(self._entities().paths_with_key(rule, key))

    def require(self, grant: Grant, operation: Operation, path: str, below: str = "") -> None:
        """Raise `AccessRefused` unless the operation on the entity at a path is permitted.

        `below` is the rest of the request's path below the entity. Many clients sign their token for that longer path.
        """
        now = self._now()
        try:
            grant.require(operation, path, now=now)
        except AccessRefused as error:
            # If an entity has the longer path as its own, the token is for that entity and not for this one.
            is_other = bool(below) and self._entities().find(f"{path}/{below}") is not None
            if error.reason is not Reason.AUDIENCE or not below or is_other:
                raise
            grant.require(operation, f"{path}/{below}", now=now)

    def require_forwarding(
        self,
        grant: Grant,
        before: Mapping[str, str],
        after: Mapping[str, str],
        tokens: Mapping[str, str | None] | None = None,
    ) -> None:
        """Raise `AccessRefused` unless an entity that forwarded to the targets in `before` may forward to `after`.

        Targets are paths, keyed by the property that names them. `tokens` are the supplementary tokens, with the same
        keys. A supplementary token must permit its target. Without one, the request's own grant must permit it, unless
        the entity already forwards there.
        """
        for field, target in after.items():
            token = (tokens or {}).get(field)
            if token is not None:
                self.require(self.verify(token), Operation.FORWARD_TO, target)
            elif before.get(field, "").lower() != target.lower():
                self.require(grant, Operation.FORWARD_TO, target)


def _bare(token: str | None) -> str | None:
    if token is not None and token[: len(_BEARER)].lower() == _BEARER:
        return token[len(_BEARER) :].lstrip()
    return token
