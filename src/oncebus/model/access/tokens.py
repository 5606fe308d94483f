"""Tokens: `SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}`.

resource    the URL-encoded address that the token is for
signature   URL-encoded base64 of the HMAC-SHA256 of resource, newline, expiry, under the characters of the key.
            Resource and expiry are signed as they appear there, because clients URL-encode in different ways
expiry      whole seconds since 1970 UTC, decimal
rule        the name of the authorization rule whose primary or secondary key signed

The four fields may come in any order, each exactly once. The signature does not cover the rule: naming another rule
only selects another key, with which verification fails.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from oncebus.model.access.authorization_rule import KEY_BYTES, AuthorizationRule
from oncebus.model.access.refusal import bad_signature, malformed_token
from oncebus.model.access.scopes import BadScope, Scope, scope_of
from oncebus.values.durations import SECOND

TYPE = "SharedAccessSignature"
LONGEST_TOKEN = 4096
LATEST = 253_402_300_799 * SECOND
"""The end of the year 9999. A token with a later expiry expires then."""

_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_EXPIRY = re.compile(r"[0-9]{1,19}")
# Stands in for the keys of an unknown rule, so that verification takes as long as for a known one. The result of the
# comparison is ignored.
_DUMMY_KEY = base64.b64encode(bytes(KEY_BYTES)).decode("ascii")


@dataclass(frozen=True)
class AccessToken:
    """A token that is parsed but not yet verified."""

    scope: Scope
    expires: int
    rule: str
    _signed: str = field(repr=False)
    _signature: str = field(repr=False)

    def signer(self, rules: list[AuthorizationRule]) -> tuple[AuthorizationRule, str]:
        """Return the rule whose key signed this token, and that key. Raises `AccessRefused` if there is none.

        `rules` are those of the token's scope and above. All rules with the token's rule name are tried, or a dummy
        key if there is none, so that the time taken does not reveal whether the name or the key was wrong.
        """
        named: list[AuthorizationRule | None] = [rule for rule in rules if rule.name == self.rule]
        found: tuple[AuthorizationRule, str] | None = None
        for rule in named or [None]:
            keys = (_DUMMY_KEY, _DUMMY_KEY) if rule is None else (rule.primary_key, rule.secondary_key)
            is_signed = [hmac.compare_digest(_sign(self._signed, key), self._signature.encode()) for key in keys]
            if rule is not None and any(is_signed):
                found = rule, keys[is_signed.index(True)]
        if found is None:
            raise bad_signature()
        return found


def make_token(resource: str, rule: str, key: str, expires: int) -> str:
    """Return a token for an address such as `sb://host/queue`. `expires` is rounded down to whole seconds."""
    encoded = quote(resource, safe="")
    expiry = str(expires // SECOND)
    signature = quote(_sign(f"{encoded}\n{expiry}", key), safe="")
    return f"{TYPE} sr={encoded}&sig={signature}&se={expiry}&skn={quote(rule, safe='')}"


def read_token(text: str) -> AccessToken:
    """Parse a token. Raises `AccessRefused` with the reason MALFORMED."""
    if len(text) > LONGEST_TOKEN or not text.isascii() or not text.isprintable():
        raise malformed_token()
    kind, _, rest = text.strip().partition(" ")
    pairs = [pair.partition("=") for pair in rest.strip().split("&")]
    fields = {name: value for name, _, value in pairs}
    if kind.lower() != TYPE.lower() or fields.keys() != _FIELDS or len(pairs) != len(_FIELDS):
        raise malformed_token()
    if not _EXPIRY.fullmatch(fields["se"]):
        raise malformed_token()
    try:
        scope = scope_of(unquote_plus(fields["sr"], errors="strict"))
        rule = unquote_plus(fields["skn"], errors="strict")
        # Some clients do not encode the plus of base64, so it must not be decoded to a space here.
        signature = unquote(fields["sig"], errors="strict")
    except (BadScope, UnicodeDecodeError):
        raise malformed_token() from None
    expires = min(int(fields["se"]) * SECOND, LATEST)
    return AccessToken(scope, expires, rule, f"{fields['sr']}\n{fields['se']}", signature)


def _sign(text: str, key: str) -> bytes:
    return base64.b64encode(hmac.digest(key.encode(), text.encode(), "sha256"))
