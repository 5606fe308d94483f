"""May they? A token, an operation and a path in; a grant or a refusal out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from oncebus.access import refusal
from oncebus.access.authorization_rule import AuthorizationRule
from oncebus.access.refusal import AccessRefused, Reason
from oncebus.access.rights import Operation, Right
from oncebus.access.scopes import BadScope, Scope, path_of, same_host
from oncebus.access.tokens import read_token
from oncebus.hosts import is_this_machine

RulesOf = Callable[[str], Iterable[AuthorizationRule]]
"""The rules of the entity at a path, which comes in lower case; none where there is no such entity."""

OwnerOf = Callable[[str], str]
"""The path, in lower case, of the entity that a path in lower case belongs to, which may be the path itself.

`orders/messages` belongs to the queue `orders`; `orders/secret` does not, whether there is such a queue or not.
"""


@dataclass(frozen=True)
class Grant:
    """What a token that was verified permits, until it expires or `renewed` finds that its key is no longer good."""

    rule: str
    rights: frozenset[Right]
    expires: int
    scope: Scope
    key: str = field(repr=False)
    """The key that signed the token."""
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
    for that one, or for this machine by a name that only it has, as the commands sign them; a port makes no
    difference. The signature is judged first, so a caller without a key learns nothing else.
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
    rule, key = given.signer(rules)
    if now >= given.expires:
        raise refusal.expired(given.expires)
    if host is not None and not same_host(given.scope.host, host) and not is_this_machine(given.scope.host):
        raise refusal.wrong_audience()
    return Grant(rule.name, rule.rights, given.expires, given.scope, key, holder=holders[id(rule)], owner_of=owner_of)


def renewed(grant: Grant, *, namespace_rules: Iterable[AuthorizationRule], rules_of: RulesOf) -> Grant | None:
    """The grant under the rules as they are now; None if none of them has the key that signed its token any more.

    Gives what verifying the token again would give, without its cost: what a key has signed does not change.
    """
    levels = [("", namespace_rules), *((path, rules_of(path)) for path in grant.scope.levels())]
    found: tuple[str, AuthorizationRule] | None = None
    for path, rules in levels:
        if (rule := _holding(grant, rules)) is not None:
            found = path, rule
    if found is None:
        return None
    holder, rule = found
    if (holder, rule.rights) == (grant.holder, grant.rights):
        return grant
    return replace(grant, rights=rule.rights, holder=holder)


def _holding(grant: Grant, rules: Iterable[AuthorizationRule]) -> AuthorizationRule | None:
    for rule in rules:
        if rule.name == grant.rule and grant.key in (rule.primary_key, rule.secondary_key):
            return rule
    return None


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
