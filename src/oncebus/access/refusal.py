"""Why somebody may not: one exception, with the words that Azure Service Bus has for it."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from oncebus.durations import SECOND
from oncebus.errors import OncebusError

UNAUTHORIZED = 401
"""The service answers every refusal so, a missing right too."""


class Reason(enum.Enum):
    """What was wrong, for protocols and metrics. The text is for people."""

    MISSING = "missing"
    MALFORMED = "malformed"
    # Also for a rule that does not exist: an outsider cannot find out which names do.
    SIGNATURE = "signature"
    EXPIRED = "expired"
    # Another host, or a resource that does not cover what was asked for.
    AUDIENCE = "audience"
    RIGHT = "right"


class AccessRefused(OncebusError):
    """The token does not permit the operation. The text holds no part of the token or of any key."""

    status = UNAUTHORIZED

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def missing() -> AccessRefused:
    """No token came."""
    return AccessRefused(Reason.MISSING, "MissingToken: The authorization header was not found.")


def malformed() -> AccessRefused:
    """Something came that is no token."""
    text = "MalformedToken: The credentials contained in the authorization header are not in the WRAP format."
    return AccessRefused(Reason.MALFORMED, text)


def bad_signature() -> AccessRefused:
    """No key of a rule of that name made this signature."""
    return AccessRefused(Reason.SIGNATURE, "InvalidSignature: The token has an invalid signature.")


def expired(expires: int) -> AccessRefused:
    """The token was good until `expires`."""
    moment = datetime.fromtimestamp(expires // SECOND, UTC)
    text = f"ExpiredToken: The token is expired. Expiration time: '{moment:%Y-%m-%d %H:%M:%S}Z'."
    return AccessRefused(Reason.EXPIRED, text)


def wrong_audience() -> AccessRefused:
    """The token is for something else."""
    text = "InvalidAudience: The authorization header contains a token with a wrong audience."
    return AccessRefused(Reason.AUDIENCE, text)
