"""Shared access rules within a description.

    <AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>
      <ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights><KeyName>…</KeyName>
      <PrimaryKey>…</PrimaryKey><SecondaryKey>…</SecondaryKey></AuthorizationRule></AuthorizationRules>

Errors never quote a key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from oncebus.access import AuthorizationRule, Right, WhichKey, fresh_key, rule_named
from oncebus.atom import markup
from oncebus.atom.document import Node
from oncebus.entities import BadRequest
from oncebus.errors import shown
from oncebus.http.times import iso8601

_TYPE = "SharedAccessAuthorizationRule"
_RIGHTS = {right.lower(): right for right in Right}


@dataclass(frozen=True, slots=True)
class GivenRule:
    """A rule as somebody asks for it. A key that is not given is the one that the rule has, or a fresh one."""

    name: str
    rights: frozenset[Right]
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)

    def made(self, old: AuthorizationRule | None, now: int) -> AuthorizationRule:
        """The rule to have, instead of an old one of its name."""
        new = old or AuthorizationRule(self.name, self.rights, fresh_key(), fresh_key(), now, now)
        new = replace(new, rights=self.rights)
        for which, key in ((WhichKey.PRIMARY, self.primary), (WhichKey.SECONDARY, self.secondary)):
            # Clients send back the keys that they were shown.
            if key and key != new.key(which):
                new = new.rotated(which, key)
        return new if old is None or new == old else replace(new, modified_at=now)


def made_rules(given: Iterable[GivenRule], old: Sequence[AuthorizationRule], now: int) -> tuple[AuthorizationRule, ...]:
    """The rules to have: those that are given, and no others."""
    return tuple(each.made(rule_named(old, each.name), now) for each in given)


def read_rights(texts: Iterable[object]) -> frozenset[Right]:
    """The rights of these names. Raises `BadRequest`."""
    rights = set()
    for text in texts:
        right = _RIGHTS.get(text.strip().lower()) if isinstance(text, str) else None
        if right is None:
            raise BadRequest(f"The access right {shown(text)} is not one of {', '.join(Right)}.")
        rights.add(right)
    return frozenset(rights)


def rights_in_order(rights: Collection[str]) -> list[str]:
    """The names of rights, always in the same order."""
    return [right.value for right in Right if right in rights]


def read_rules(node: Node) -> tuple[GivenRule, ...]:
    """The rules that an element holds."""
    return tuple(_rule(each) for each in node)


def written_rules(rules: Iterable[AuthorizationRule]) -> str:
    """The element that holds these rules, their keys among them."""
    return markup.tag("AuthorizationRules", "".join(_written(rule) for rule in rules))


def _rule(node: Node) -> GivenRule:
    if node.name != "AuthorizationRule":
        raise BadRequest(f"The element {shown(node.name)} is not known among the authorization rules.")
    if node.type not in (None, _TYPE):
        raise BadRequest(f"The authorization rule has type {shown(node.type)}. Not {_TYPE}.")
    members = node.members()
    name = members["KeyName"].text.strip() if "KeyName" in members else ""
    rights = read_rights(each.text for each in members["Rights"]) if "Rights" in members else frozenset()
    keys = {which: members[which].text.strip() if which in members else None for which in _KEYS}
    return GivenRule(name, rights, keys["PrimaryKey"], keys["SecondaryKey"])


_KEYS = ("PrimaryKey", "SecondaryKey")


def _written(rule: AuthorizationRule) -> str:
    times = (("CreatedTime", rule.created_at), ("ModifiedTime", rule.modified_at))
    content = (
        markup.field("ClaimType", "SharedAccessKey"),
        markup.field("ClaimValue", "None"),
        markup.tag("Rights", "".join(markup.field("AccessRights", right) for right in rights_in_order(rule.rights))),
        *(markup.field(name, iso8601(time)) for name, time in times if time is not None),
        markup.field("KeyName", rule.name),
        markup.field("PrimaryKey", rule.primary_key),
        markup.field("SecondaryKey", rule.secondary_key),
    )
    return markup.tag("AuthorizationRule", "".join(content), {"i:type": _TYPE})
