"""The token: `SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}`.

resource    the url-encoded address that the token is for
signature   url-encoded base64 of HMAC-SHA256 under the key's own characters, over resource, newline, expiry:
            both as they stand in the token, since clients url-encode in different ways
expiry      whole seconds since 1970 UTC, decimal
rule        the name of the authorization rule whose primary or secondary key signed

The fields may come in any order, each once, and no others. The rule is not signed: naming another one only chooses
another key to fail with.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from oncebus.access.authorization_rule import KEY_BYTES, AuthorizationRule
from oncebus.access.refusal import bad_signature, malformed
from oncebus.access.scopes import BadScope, Scope, scope_of
from oncebus.durations import SECOND

TYPE = "SharedAccessSignature"
LONGEST_TOKEN = 4096
LATEST = 253_402_300_799 * SECOND
"""The end of the year 9999: a token that names a later time is taken to expire then."""

_FIELDS = frozenset({"sr", "sig", "se", "skn"})
_EXPIRY = re.compile(r"[0-9]{1,19}")
# An unknown rule is compared with this key, to take as long as a known one. Whatever comes of it, nobody is found.
_NOBODY = base64.b64encode(bytes(KEY_BYTES)).decode("ascii")


@dataclass(frozen=True)
class Token:
    """A token that has been read and not yet believed."""

    scope: Scope
    expires: int
    rule: str
    _signed: str = field(repr=False)
    _signature: str = field(repr=False)

    def signer(self, rules: list[AuthorizationRule]) -> tuple[AuthorizationRule, str]:
        """The rule, of those that stand at the token's scope or above, whose key made this token; and that key.

        Every rule of the name is tried, and nobody's when there is none, so that the time taken does not tell
        whether the name, the key or neither was right.
        """
        named: list[AuthorizationRule | None] = [rule for rule in rules if rule.name == self.rule]
        found: tuple[AuthorizationRule, str] | None = None
        for rule in named or [None]:
            keys = (_NOBODY, _NOBODY) if rule is None else (rule.primary_key, rule.secondary_key)
            is_signed = [hmac.compare_digest(_sign(self._signed, key), self._signature.encode()) for key in keys]
            if rule is not None and any(is_signed):
                found = rule, keys[is_signed.index(True)]
        if found is None:
            raise bad_signature()
        return found


def make_token(resource: str, rule: str, key: str, expires: int) -> str:
    """A token for an address such as `sb://host/queue`. `expires` is cut to whole seconds."""
    encoded = quote(resource, safe="")
    expiry = str(expires // SECOND)
    signature = quote(_sign(f"{encoded}\n{expiry}", key), safe="")
    return f"{TYPE} sr={encoded}&sig={signature}&se={expiry}&skn={quote(rule, safe='')}"


def read_token(text: str) -> Token:
    """The token in a text; anything else is refused as malformed."""
    if len(text) > LONGEST_TOKEN or not text.isascii() or not text.isprintable():
        raise malformed()
    kind, _, rest = text.strip().partition(" ")
    pairs = [pair.partition("=") for pair in rest.strip().split("&")]
    fields = {name: value for name, _, value in pairs}
    if kind.lower() != TYPE.lower() or fields.keys() != _FIELDS or len(pairs) != len(_FIELDS):
        raise malformed()
    if not _EXPIRY.fullmatch(fields["se"]):
        raise malformed()
    try:
        scope = scope_of(unquote_plus(fields["sr"], errors="strict"))
        rule = unquote_plus(fields["skn"], errors="strict")
        # Plus is a digit of base64, and some clients leave it as it is.
        signature = unquote(fields["sig"], errors="strict")
    except (BadScope, UnicodeDecodeError):
        raise malformed() from None
    expires = min(int(fields["se"]) * SECOND, LATEST)
    return Token(scope, expires, rule, f"{fields['sr']}\n{fields['se']}", signature)


def _sign(text: str, key: str) -> bytes:
    return base64.b64encode(hmac.digest(key.encode(), text.encode(), "sha256"))
