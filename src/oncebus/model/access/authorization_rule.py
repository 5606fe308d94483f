"""An authorization rule: a name, the rights it grants, and two keys. Either key can sign tokens."""

from __future__ import annotations

import base64
import enum
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from oncebus.model.access.rights import Right, Rights
from oncebus.values.errors import ErrorKind, OncebusError

ROOT_RULE = "RootManageSharedAccessKey"
KEY_BYTES = 32
LEAST_KEY = 16
"""The minimum length of a key that a client chooses. Keys from files may be shorter, like the emulator's."""
MOST_RULES = 12
"""The maximum number of rules per namespace or entity."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")
_KEY = re.compile(r"[!-:<-~]{1,256}")


class BadAuthorizationRule(OncebusError, ValueError):
    """An authorization rule is invalid. The message never contains a key."""

    kind = ErrorKind.BAD_REQUEST


class WhichKey(enum.StrEnum):
    """One of a rule's two keys, under its name in Azure's management API."""

    PRIMARY = "PrimaryKey"
    SECONDARY = "SecondaryKey"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A rule of the namespace or of an entity. A token signed with one of its keys has its rights there and below.

    `rights` becomes `Rights`, which keeps their order. The repr shows no key. Raises `BadAuthorizationRule`.
    """

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    only_metrics: bool = field(default=False, kw_only=True)
    """Whether its tokens may read metrics and nothing else, whatever `rights` says."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadAuthorizationRule(
                f"Authorization rule name {self.name!r} must be 1 to 50 letters, digits, periods, hyphens or "
                "underscores, and must begin and end with a letter or digit."
            )
        if not self.rights:
            raise BadAuthorizationRule(
                f"Authorization rule '{self.name}' has no rights. Give it Send, Listen or Manage."
            )
        for which, key in ((WhichKey.PRIMARY, self.primary_key), (WhichKey.SECONDARY, self.secondary_key)):
            if not _KEY.fullmatch(key):
                raise BadAuthorizationRule(
                    f"{which} of authorization rule '{self.name}' is not a key: "
                    "1 to 256 visible ASCII characters without a semicolon."
                )
        object.__setattr__(self, "rights", Rights(self.rights))

    def key(self, which: WhichKey) -> str:
        """Return the primary or secondary key."""
        return self.primary_key if which is WhichKey.PRIMARY else self.secondary_key

    def rotate_key(self, which: WhichKey, key: str | None = None) -> AuthorizationRule:
        """Return the rule with one key replaced by the given key, or by a random one.

        Raises `BadAuthorizationRule` if the key is too short.
        """
        new = fresh_key() if key is None else key
        if len(new) < LEAST_KEY:
            raise BadAuthorizationRule(
                f"{which} of authorization rule '{self.name}' is too short: it needs at least {LEAST_KEY} characters. "
                "Leave it out to get a random one."
            )
        return replace(self, primary_key=new) if which is WhichKey.PRIMARY else replace(self, secondary_key=new)


def fresh_key() -> str:
    """Return a random key."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def fresh_rule(name: str, rights: Iterable[Right]) -> AuthorizationRule:
    """Return a rule with random keys."""
    return AuthorizationRule(name, Rights(rights), fresh_key(), fresh_key())


def rule_named(rules: Iterable[AuthorizationRule], name: str) -> AuthorizationRule | None:
    """Return the rule called `name`, else one whose name differs only in letter case, else None."""
    alike = [rule for rule in rules if rule.name.lower() == name.lower()]
    return next((rule for rule in alike if rule.name == name), alike[0] if alike else None)


def rule_with_key(rules: Iterable[AuthorizationRule], name: str, key: str) -> AuthorizationRule | None:
    """Return the rule called `name` that has this key, or None. An unknown name takes as long as a wrong key."""
    given, found = key.encode("utf-8", "replace"), None
    named: list[AuthorizationRule | None] = [rule for rule in rules if rule.name == name]
    for rule in named or [None]:
        keys = ("", "") if rule is None else (rule.primary_key, rule.secondary_key)
        is_same = [hmac.compare_digest(each.encode(), given) for each in keys]
        if rule is not None and any(is_same):
            found = rule
    return found


def connection_string(
    host: str,
    port: int | None,
    rule: AuthorizationRule,
    emulator: bool,
    *,
    entity: str | None = None,
    which: WhichKey = WhichKey.PRIMARY,
) -> str:
    """Return a connection string for a client. It contains the key, so it must not be logged.

    With `emulator`, clients connect without TLS. The rule of an entity needs `entity`.
    """
    place = f"[{host}]" if ":" in host and not host.startswith("[") else host
    if port is not None:
        place = f"{place}:{port}"
    parts = [
        f"Endpoint=sb://{place}" if emulator else f"Endpoint=sb://{place}/",
        f"SharedAccessKeyName={rule.name}",
        f"SharedAccessKey={rule.key(which)}",
    ]
    if entity is not None:
        parts.append(f"EntityPath={entity}")
    if emulator:
        # Clients look for exactly this text.
        parts.append("UseDevelopmentEmulator=true")
    return ";".join(parts)


EMULATOR_RULE = AuthorizationRule(ROOT_RULE, frozenset({Right.MANAGE}), "SAS_KEY_VALUE", "SAS_KEY_VALUE")
"""The rule in every connection string of the official emulator. Its key is public, so it is only for `emulator`."""
