"""Who asks, and may they: the token of a request against the rules of the namespace and of the entities."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from oncebus import access
from oncebus.access import AccessRefused, Grant, Operation, Reason
from oncebus.entities import AuthorizationRule, Catalogue, Queue, Topic

log = logging.getLogger(__name__)

NamespaceRules = Callable[[], Iterable[access.AuthorizationRule]]


class Guard:
    """Believes tokens, and says what they permit. `now` is in microseconds since 1970."""

    def __init__(
        self,
        namespace_rules: NamespaceRules,
        catalogue: Callable[[], Catalogue],
        now: Callable[[], int],
        host: str | None,
    ) -> None:
        self._namespace_rules = namespace_rules
        self._catalogue = catalogue
        self._now = now
        self._host = host

    def verify(self, token: str | None) -> Grant:
        """Believe a token, or raise `AccessRefused`. Nothing is told of the namespace before."""
        catalogue = self._catalogue()
        return access.verify(
            token,
            now=self._now(),
            namespace_rules=self._namespace_rules(),
            rules_of=lambda path: rules_of(catalogue, path),
            host=self._host,
        )

    def require(self, grant: Grant, operation: Operation, path: str, below: str = "") -> None:
        """Raise `AccessRefused` unless the operation on the entity at a path is permitted.

        `below` is what the request names beneath the entity: many clients sign for that alone.
        """
        now = self._now()
        try:
            grant.require(operation, path, now=now)
        except AccessRefused as error:
            if error.reason is not Reason.AUDIENCE or not below:
                raise
            grant.require(operation, f"{path}/{below}", now=now)


def rules_of(catalogue: Catalogue, path: str) -> list[access.AuthorizationRule]:
    """The rules of the entity at a path. A subscription has none of its own."""
    entity = catalogue.find(path)
    if not isinstance(entity, Queue | Topic):
        return []
    rules = []
    for rule in entity.authorization_rules:
        try:
            rules.append(_adapted(rule))
        except access.BadRule as error:
            # It was taken when the entity was made; no token can be signed with it.
            log.warning("A rule of '%s' cannot be used: %s", entity.path, error)
    return rules


def _adapted(rule: AuthorizationRule) -> access.AuthorizationRule:
    rights = frozenset(access.Right(right.value) for right in rule.rights)
    return access.AuthorizationRule(rule.name, rights, rule.primary_key, rule.secondary_key)
