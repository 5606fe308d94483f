"""Authorization rules as somebody asks for them. Errors never quote a key."""

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
    """A rule as somebody asks for it. A key that is not given is the one that the rule has, or a fresh one."""

    name: str
    rights: frozenset[Right]
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)

    def made(self, old: AuthorizationRule | None, now: int) -> AuthorizationRule:
        """Return the rule to have, instead of an old one of its name."""
        new = old or AuthorizationRule(self.name, self.rights, fresh_key(), fresh_key(), now, now)
        new = replace(new, rights=self.rights)
        for which, key in ((WhichKey.PRIMARY, self.primary), (WhichKey.SECONDARY, self.secondary)):
            # Clients send back the keys that they were shown.
            if key and key != new.key(which):
                new = new.rotated(which, key)
        return new if old is None or new == old else replace(new, modified_at=now)

    def put_into(self, rules: Rules, now: int) -> Rules:
        """Return the rules with this one among them. The same rules where it is there already."""
        old = rule_named(rules, self.name)
        new = self.made(old, now)
        if old is None:
            return (*rules, new)
        return rules if new is old else tuple(new if each is old else each for each in rules)


def made_rules(given: Iterable[GivenRule], old: Sequence[AuthorizationRule], now: int) -> Rules:
    """Return the rules to have: those that are given, and no others."""
    return tuple(each.made(rule_named(old, each.name), now) for each in given)


def read_rights(texts: Iterable[object]) -> frozenset[Right]:
    """Return the rights of these names. Raises `BadRequest`."""
    rights = set()
    for text in texts:
        right = _RIGHTS.get(text.strip().lower()) if isinstance(text, str) else None
        if right is None:
            raise BadRequest(f"The access right {shown(text)} is not one of {', '.join(Right)}.")
        rights.add(right)
    return frozenset(rights)


def rights_in_order(rights: Collection[str]) -> list[str]:
    """Return the names of rights, always in the same order."""
    return [right.value for right in Right if right in rights]
