"""Requested authorization rules. Errors never quote a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from oncebus.model.access import AuthorizationRule, Right, Rights, WhichKey, fresh_key, rule_named
from oncebus.model.entities import BadRequest
from oncebus.values.errors import clip

Rules = tuple[AuthorizationRule, ...]

_RIGHTS = {right.lower(): right for right in Right}


@dataclass(frozen=True, slots=True)
class GivenRule:
    """A requested rule. If a key is not given, an existing rule keeps its key and a new rule gets a random one."""

    name: str
    rights: frozenset[Right]
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)

    def build(self, old: AuthorizationRule | None) -> AuthorizationRule:
        """Return the resulting rule. `old` is the existing rule that it replaces, or None."""
        new = old or AuthorizationRule(self.name, self.rights, fresh_key(), fresh_key())
        new = replace(new, rights=self.rights)
        for which, key in ((WhichKey.PRIMARY, self.primary), (WhichKey.SECONDARY, self.secondary)):
            # Clients send back the keys that they read: an unchanged key is not a rotation.
            if key and key != new.key(which):
                new = new.rotate_key(which, key)
        return old if new == old else new

    def put_into(self, rules: Rules) -> Rules:
        """Return `rules` with this rule added or replaced; the same tuple if nothing changes."""
        old = rule_named(rules, self.name)
        new = self.build(old)
        if old is None:
            return (*rules, new)
        return rules if new is old else tuple(new if each is old else each for each in rules)


def build_rules(given: Iterable[GivenRule], old: Sequence[AuthorizationRule]) -> Rules:
    """Return the resulting rules. Rules in `old` that are not in `given` are removed."""
    return tuple(each.build(rule_named(old, each.name)) for each in given)


def read_rights(texts: Iterable[object]) -> Rights:
    """Return the rights with the given names, in any letter case. Raises `BadRequest` for an unknown name."""
    rights: list[Right] = []
    for text in texts:
        right = _RIGHTS.get(text.strip().lower()) if isinstance(text, str) else None
        if right is None:
            raise BadRequest(f"The access right {clip(text)} is not one of {', '.join(Right)}.")
        rights.append(right)
    return Rights(rights)


def rights_in_order(rights: Iterable[Right]) -> list[str]:
    """Return the names of rights, in the order they were given."""
    return [right.value for right in Rights(rights).order]
