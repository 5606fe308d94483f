"""The exception for a refused token or operation, with the error texts of Azure Service Bus."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from oncebus.values.durations import SECOND
from oncebus.values.errors import ErrorKind, OncebusError

UNAUTHORIZED = 401
"""The status of every refusal. The service uses it even for a missing right."""


class Reason(enum.Enum):
    """The reason for a refusal, for protocols and metrics. The text is for people."""

    MISSING = "missing"
    MALFORMED = "malformed"
    # Also for a rule that does not exist, so that an outsider cannot find out which rules exist.
    SIGNATURE = "signature"
    EXPIRED = "expired"
    # The token is for another host, or for a resource that does not cover the requested one.
    AUDIENCE = "audience"
    # A token of an identity provider: it is not valid yet; it is of another one.
    EARLY = "early"
    ISSUER = "issuer"
    RIGHT = "right"


class AccessRefused(OncebusError):
    """The token does not permit the operation. The message contains no part of the token or of any key."""

    kind = ErrorKind.UNAUTHORIZED

    status = UNAUTHORIZED

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def missing_token() -> AccessRefused:
    """Return the refusal of a request without a token."""
    return AccessRefused(Reason.MISSING, "MissingToken: The authorization header was not found.")


def malformed_token() -> AccessRefused:
    """Return the refusal of a text that is not a token."""
    text = "MalformedToken: The credentials contained in the authorization header are not in the WRAP format."
    return AccessRefused(Reason.MALFORMED, text)


def bad_signature() -> AccessRefused:
    """Return the refusal of a signature that no key of the named rule made."""
    return AccessRefused(Reason.SIGNATURE, "InvalidSignature: The token has an invalid signature.")


def expired_token(expires: int) -> AccessRefused:
    """Return the refusal of a token that was valid until `expires`."""
    moment = datetime.fromtimestamp(expires // SECOND, UTC)
    text = f"ExpiredToken: The token is expired. Expiration time: '{moment:%Y-%m-%d %H:%M:%S}Z'."
    return AccessRefused(Reason.EXPIRED, text)


def wrong_audience() -> AccessRefused:
    """Return the refusal of a token for another host or resource."""
    text = "InvalidAudience: The authorization header contains a token with a wrong audience."
    return AccessRefused(Reason.AUDIENCE, text)


def early_token(begins: int) -> AccessRefused:
    """Return the refusal of a token that is valid only from `begins`."""
    moment = datetime.fromtimestamp(begins // SECOND, UTC)
    text = f"InvalidToken: The token is not valid yet. It is valid from '{moment:%Y-%m-%d %H:%M:%S}Z'."
    return AccessRefused(Reason.EARLY, text)


def wrong_issuer() -> AccessRefused:
    """Return the refusal of a token that names another issuer than the one whose key signed it."""
    return AccessRefused(Reason.ISSUER, "InvalidIssuer: The token has a wrong issuer.")


def no_issuer() -> AccessRefused:
    """Return the refusal of an identity provider's token by a broker that trusts none."""
    text = "InvalidIssuer: This broker trusts no identity provider. Its setting 'oidc_issuer' names one."
    return AccessRefused(Reason.ISSUER, text)
