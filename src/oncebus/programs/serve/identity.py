"""The identity provider whose tokens the broker accepts, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncebus.values.errors import OncebusError
from oncebus.values.settings import Settings

if TYPE_CHECKING:
    from oncebus.model.access.issuer import ClaimRule, Issuer
    from oncebus.protocols.signing_keys import SigningKeys


class BadClaimsFile(OncebusError):
    """The file of claims cannot be used."""


def claim_rules(settings: Settings) -> tuple[ClaimRule, ...]:
    """Return what the claims of tokens permit; nothing without such a file. Raises `BadClaimsFile`."""
    file = settings.oidc_claims
    if file is None:
        return ()
    from oncebus.model.access.issuer import BadClaimRules, read_claim_rules

    try:
        return read_claim_rules(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadClaimsFile(f"File of claims '{file}' cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise BadClaimsFile(f"File of claims '{file}' is not UTF-8.") from None
    except BadClaimRules as error:
        raise BadClaimsFile(f"File of claims '{file}' cannot be used. {error}") from None


def trusted_issuer(settings: Settings) -> tuple[SigningKeys, Issuer] | tuple[None, None]:
    """Return the keys of the identity provider, which are not fetched yet, and the provider. Raises `BadClaimsFile`."""
    if settings.oidc_issuer is None or settings.oidc_audience is None:
        return None, None
    from oncebus.model.access.issuer import Issuer
    from oncebus.protocols.signing_keys import SigningKeys

    keys = SigningKeys(settings.oidc_issuer)
    return keys, Issuer(settings.oidc_issuer, settings.oidc_audience, claim_rules(settings), keys)
