"""The Resource Manager's client for a broker. Its credential is a token that the broker's key signed."""

from __future__ import annotations

from typing import Any

from azure.core.credentials import AccessToken
from azure.mgmt.servicebus import ServiceBusManagementClient

from oncebus.broker.clock import wall_time
from oncebus.model.access import AuthorizationRule, make_token
from oncebus.values.durations import HOUR, SECOND
from tests.protocols.atom.served import Reachable

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"


class SignedToken:
    """A token as `oncebus token` prints it, as a credential."""

    def __init__(self, service: Reachable, rule: AuthorizationRule) -> None:
        self._service = service
        self._rule = rule

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        expires = wall_time() + HOUR
        resource = f"https://{self._service.host}/"
        return AccessToken(make_token(resource, self._rule.name, self._rule.primary_key, expires), expires // SECOND)


def management(service: Reachable, rule: AuthorizationRule | None = None) -> ServiceBusManagementClient:
    """Return the official client for a service."""
    return ServiceBusManagementClient(
        SignedToken(service, rule or service.root),
        SUBSCRIPTION,
        base_url=f"https://{service.host}",
        credential_scopes=["https://oncebus/.default"],
        connection_verify=str(service.certificate),
        retry_total=0,
        polling_interval=0,
    )
