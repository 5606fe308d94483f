"""Authorization: takes a token, an operation and a path, and returns a grant or raises a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from oncebus.model.access import refusal
from oncebus.model.access.authorization_rule import AuthorizationRule
from oncebus.model.access.refusal import AccessRefused, Reason
from oncebus.model.access.rights import Operation, Right
from oncebus.model.access.scopes import BadScope, Scope, path_of, same_host
from oncebus.model.access.tokens import read_token
from oncebus.values.hosts import is_this_machine

RulesOf = Callable[[str], Iterable[AuthorizationRule]]
"""Returns the rules of the entity at a lower-case path. Empty if there is no such entity."""

OwnerOf = Callable[[str], str]
"""Returns the path of the entity that a path belongs to. It may be the path itself. Both are in lower case.

`orders/messages` belongs to the queue `orders`. `orders/secret` does not, whether or not such a queue exists.
"""


@dataclass(frozen=True)
class Grant:
    """The permissions of a verified token, until it expires or `renew` finds that its key is no longer valid."""

    rule: str
    rights: frozenset[Right]
    expires: int
    scope: Scope
    key: str = field(repr=False)
    """The key that signed the token."""
    holder: str = field(default="", kw_only=True)
    """The path of the entity whose rule signed the token; empty for the namespace."""
    owner_of: OwnerOf | None = field(default=None, kw_only=True, repr=False, compare=False)
    only_metrics: bool = field(default=False, kw_only=True)
    """Whether the token may read metrics and nothing else. `rights` are then those of the rule, and grant nothing."""

    def covers(self, path: str) -> bool:
        """Return whether the token is about the entity at `path`, which need not exist."""
        try:
            segments = path_of(path)
        except BadScope:
            return False
        if not self.scope.covers(segments):
            return False
        # The path of one entity may be a prefix of another's: `orders` and `orders/secret`. A rule of the first grants
        # nothing on the second.
        return not self.holder or self.owner_of is None or self.owner_of("/".join(segments)) == self.holder

    def rights_on(self, path: str) -> frozenset[Right]:  # noqa: ARG002
        """Return the rights on an entity that the token covers."""
        return frozenset() if self.only_metrics else self.rights

    @property
    def signer(self) -> str:
        """Return a name for the rule that signed the token, unique in the namespace. Clients share places by it."""
        return f"{self.holder}:{self.rule}"

    def require(self, operation: Operation, path: str, *, now: int) -> None:
        """Raise `AccessRefused` unless the operation on the entity at `path` is permitted now."""
        if now >= self.expires:
            raise refusal.expired_token(self.expires)
        if not self.covers(path):
            raise refusal.wrong_audience()
        reads_metrics = self.only_metrics and operation is Operation.METRICS
        if not reads_metrics and operation.right not in self.rights_on(path):
            resource = "/".join((self.scope.host, *path_of(path)))
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
    """Return the grant of a token, or raise `AccessRefused`. `Grant.require` checks single operations.

    The rule that signed must belong to the token's resource or to something above it: the namespace, or an entity on
    the path. With `owner_of`, the rule of an entity grants nothing on the parts of another entity. With `host`, the
    token must be for that host or for a loopback name of this machine, which the commands use; ports are ignored. The
    signature is verified first, so a caller without a key learns nothing else.
    """
    if not token:
        raise refusal.missing_token()
    given = read_token(token)
    rules = list(namespace_rules)
    holders = dict.fromkeys(map(id, rules), "")
    for path in given.scope.levels():
        found = list(rules_of(path))
        rules.extend(found)
        holders |= dict.fromkeys(map(id, found), path)
    rule, key = given.signer(rules)
    if now >= given.expires:
        raise refusal.expired_token(given.expires)
    if host is not None and not same_host(given.scope.host, host) and not is_this_machine(given.scope.host):
        raise refusal.wrong_audience()
    return Grant(
        rule.name,
        rule.rights,
        given.expires,
        given.scope,
        key,
        holder=holders[id(rule)],
        owner_of=owner_of,
        only_metrics=rule.only_metrics,
    )


def renew(grant: Grant, *, namespace_rules: Iterable[AuthorizationRule], rules_of: RulesOf) -> Grant | None:
    """Return the grant under the current rules; None if the key that signed the token is no longer in any rule.

    The result is the same as from verifying the token again, without the cost: a signature stays valid for its key.
    """
    levels = [("", namespace_rules), *((path, rules_of(path)) for path in grant.scope.levels())]
    for path, rules in reversed(levels):
        for rule in rules:
            if rule.name == grant.rule and grant.key in (rule.primary_key, rule.secondary_key):
                found = (path, rule.rights, rule.only_metrics)
                if found == (grant.holder, grant.rights, grant.only_metrics):
                    return grant
                return replace(grant, rights=rule.rights, holder=path, only_metrics=rule.only_metrics)
    return None
