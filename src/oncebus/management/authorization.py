"""Requested authorization rules. Errors never quote a key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from oncebus.access import AuthorizationRule, Right, WhichKey, fresh_key, rule_named
from oncebus.entities import BadRequest
from oncebus.errors import shown

Rules = tuple[AuthorizationRule, ...]

_RIGHTS = {right.lower(): right for right in Right}


@dataclass(frozen=True, slots=True)
class GivenRule:
    """A requested rule. A key that is not given stays as it is; a new rule gets a random one."""

    name: str
    rights: frozenset[Right]
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)

    def made(self, old: AuthorizationRule | None, now: int) -> AuthorizationRule:
        """Return the new rule. It replaces `old`, the existing rule with its name, if there is one."""
        new = old or AuthorizationRule(self.name, self.rights, fresh_key(), fresh_key(), now, now)
        new = replace(new, rights=self.rights)
        for which, key in ((WhichKey.PRIMARY, self.primary), (WhichKey.SECONDARY, self.secondary)):
            # Clients send back the keys that they read: an unchanged key is not a rotation.
            if key and key != new.key(which):
                new = new.rotated(which, key)
        return new if old is None or new == old else replace(new, modified_at=now)

    def put_into(self, rules: Rules, now: int) -> Rules:
        """Return the rules with this one added or replaced; the same tuple if nothing changes."""
        old = rule_named(rules, self.name)
        new = self.made(old, now)
        if old is None:
            return (*rules, new)
        return rules if new is old else tuple(new if each is old else each for each in rules)


def made_rules(given: Iterable[GivenRule], old: Sequence[AuthorizationRule], now: int) -> Rules:
    """Return the new rules. A rule of `old` that is not given is removed."""
    return tuple(each.made(rule_named(old, each.name), now) for each in given)


def read_rights(texts: Iterable[object]) -> frozenset[Right]:
    """Return the rights with these names, in any case. Raises `BadRequest` for an unknown name."""
    rights = set()
    for text in texts:
        right = _RIGHTS.get(text.strip().lower()) if isinstance(text, str) else None
        if right is None:
            raise BadRequest(f"The access right {shown(text)} is not one of {', '.join(Right)}.")
        rights.add(right)
    return frozenset(rights)


def rights_in_order(rights: Collection[str]) -> list[str]:
    """Return the names of rights, in the order of `Right`."""
    return [right.value for right in Right if right in rights]
