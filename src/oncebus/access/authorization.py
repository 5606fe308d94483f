"""May they? A token, an operation and a path in; a grant or a refusal out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from oncebus.access import refusal
from oncebus.access.refusal import AccessRefused, Reason
from oncebus.access.rights import Operation, Right
from oncebus.access.rules import AuthorizationRule
from oncebus.access.scopes import BadScope, Scope, path_of, same_host
from oncebus.access.tokens import read_token

RulesOf = Callable[[str], Iterable[AuthorizationRule]]
"""The rules of the entity at a path, which comes in lower case; none where there is no such entity."""

OwnerOf = Callable[[str], str]
"""The path, in lower case, of the entity that a path in lower case belongs to, which may be the path itself.

`orders/messages` belongs to the queue `orders`; `orders/secret` does not, whether there is such a queue or not.
"""


@dataclass(frozen=True)
class Grant:
    """What a token that was believed permits, until it expires. A live link ends with it."""

    rule: str
    rights: frozenset[Right]
    expires: int
    scope: Scope
    holder: str = field(default="", kw_only=True)
    """The path of the entity whose rule signed; empty for the namespace."""
    owner_of: OwnerOf | None = field(default=None, kw_only=True, repr=False, compare=False)

    def require(self, operation: Operation, path: str, *, now: int) -> None:
        """Raise `AccessRefused` unless the operation on the entity at `path` is permitted now."""
        if now >= self.expires:
            raise refusal.expired(self.expires)
        try:
            asked = path_of(path)
        except BadScope:
            raise refusal.wrong_audience() from None
        if not self.scope.covers(asked):
            raise refusal.wrong_audience()
        # An entity may have another's path before its own; a rule of that other one does not reach it.
        if self.holder and self.owner_of is not None and self.owner_of("/".join(asked)) != self.holder:
            raise refusal.wrong_audience()
        if operation.right not in self.rights:
            resource = "/".join((self.scope.host, *asked))
            raise AccessRefused(Reason.RIGHT, operation.refusal(resource))


def verify(
    token: str | None,
    *,
    now: int,
    namespace_rules: Iterable[AuthorizationRule],
    rules_of: RulesOf,
    owner_of: OwnerOf | None = None,
    host: str | None = None,
) -> Grant:
    """Believe a token or raise `AccessRefused`. What it permits is the grant's to say.

    The rule must stand at the token's resource or above it: on the namespace, or on an entity on the way. With
    `owner_of`, the rule of an entity grants nothing for what belongs to another one. With `host`, the token must be
    for that one; a port makes no difference. The signature is judged before all else, so who has no key learns
    nothing but that.
    """
    if not token:
        raise refusal.missing()
    given = read_token(token)
    rules = list(namespace_rules)
    holders = dict.fromkeys(map(id, rules), "")
    for path in given.scope.levels():
        found = list(rules_of(path))
        rules.extend(found)
        holders |= dict.fromkeys(map(id, found), path)
    rule = given.signer(rules)
    if now >= given.expires:
        raise refusal.expired(given.expires)
    if host is not None and not same_host(given.scope.host, host):
        raise refusal.wrong_audience()
    return Grant(rule.name, rule.rights, given.expires, given.scope, holder=holders[id(rule)], owner_of=owner_of)


def authorize(
    token: str | None,
    operation: Operation,
    path: str,
    *,
    now: int,
    namespace_rules: Iterable[AuthorizationRule],
    rules_of: RulesOf,
    host: str | None = None,
) -> Grant:
    """The grant under which the token permits the operation on the entity at `path`, or `AccessRefused`.

    `path` is the entity's, or the request's own where that is longer, such as `queue/messages`; without its
    url-encoding. The namespace itself is the empty path.
    """
    grant = verify(token, now=now, namespace_rules=namespace_rules, rules_of=rules_of, host=host)
    grant.require(operation, path, now=now)
    return grant
