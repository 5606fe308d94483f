"""Shared access rules within a description.

    <AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>
      <ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights><KeyName>…</KeyName>
      <PrimaryKey>…</PrimaryKey><SecondaryKey>…</SecondaryKey></AuthorizationRule></AuthorizationRules>

Errors never quote a key.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebus.model.access import AuthorizationRule
from oncebus.model.entities import BadRequest
from oncebus.protocols.atom import markup
from oncebus.protocols.atom.document import Element
from oncebus.protocols.management.authorization import GivenRule, read_rights, rights_in_order
from oncebus.values.errors import clip

_TYPE = "SharedAccessAuthorizationRule"


def read_rules(node: Element) -> tuple[GivenRule, ...]:
    """Return the rules in an element. Raises `BadRequest`."""
    return tuple(_rule(each) for each in node)


def write_rules(rules: Iterable[AuthorizationRule]) -> str:
    """Return the XML element that holds the rules, including their keys."""
    return markup.tag("AuthorizationRules", "".join(_write(rule) for rule in rules))


def _rule(node: Element) -> GivenRule:
    if node.name != "AuthorizationRule":
        raise BadRequest(f"The element {clip(node.name)} is not allowed among the authorization rules.")
    if node.type not in (None, _TYPE):
        raise BadRequest(f"The authorization rule has type {clip(node.type)}. Not {_TYPE}.")
    members = node.members()
    name = members["KeyName"].text.strip() if "KeyName" in members else ""
    rights = read_rights(each.text for each in members["Rights"]) if "Rights" in members else frozenset()
    keys = {which: members[which].text.strip() if which in members else None for which in _KEYS}
    return GivenRule(name, rights, keys["PrimaryKey"], keys["SecondaryKey"])


_KEYS = ("PrimaryKey", "SecondaryKey")


def _write(rule: AuthorizationRule) -> str:
    content = (
        markup.field("ClaimType", "SharedAccessKey"),
        markup.field("ClaimValue", "None"),
        markup.tag("Rights", "".join(markup.field("AccessRights", right) for right in rights_in_order(rule.rights))),
        markup.field("KeyName", rule.name),
        markup.field("PrimaryKey", rule.primary_key),
        markup.field("SecondaryKey", rule.secondary_key),
    )
    return markup.tag("AuthorizationRule", "".join(content), {"i:type": _TYPE})
