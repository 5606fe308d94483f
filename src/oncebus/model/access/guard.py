"""Checks the token of a request against the authorization rules of the namespace and of its entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from oncebus.model.access.authorization import Grant, renew, verify
from oncebus.model.access.authorization_rule import AuthorizationRule
from oncebus.model.access.refusal import AccessRefused, Reason
from oncebus.model.access.rights import Operation

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
    ) -> None:
        self._namespace_rules = namespace_rules
        self._entities = entities
        self._now = now
        self._host = host

    def verify(self, token: str | None) -> Grant:
        """Return the grant of a token, or raise `AccessRefused`, which reveals nothing about the namespace.

        The token may follow the word Bearer: some clients can only send it that way.
        """
        return verify(
            _bare(token),
            now=self._now(),
            namespace_rules=self._namespace_rules(),
            rules_of=self._entities().authorization_rules_of,
            # Called again and again while a connection lasts, so it must use the current catalogue each time.
            owner_of=lambda path: self._entities().owner_of(path),
            host=self._host,
        )

    def renew(self, grant: Grant, namespace_rules: Iterable[AuthorizationRule] | None = None) -> Grant | None:
        """Return the grant under the current rules; None if the key that signed its token is no longer valid.

        A caller that renews many grants passes the rules of the namespace to avoid a lookup for each grant.
        """
        return renew(
            grant,
            namespace_rules=self._namespace_rules() if namespace_rules is None else namespace_rules,
            rules_of=self._entities().authorization_rules_of,
        )

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """Return the current rules of the namespace."""
        return tuple(self._namespace_rules())

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
