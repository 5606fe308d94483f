"""What surrounds a namespace in Azure: tenants, subscriptions, resource groups, providers, lists of resources.

The broker has one tenant, one subscription and one location. A resource group of any name exists, and so does any
subscription that a path names: they are only words in the ids of resources.

    GET   /tenants, /subscriptions, /subscriptions/{s}, /subscriptions/{s}/locations
    GET   [/subscriptions/{s}]/providers[/{provider}]      POST …/{provider}/register
    GET   /subscriptions/{s}/resourceGroups                GET, HEAD, PUT, PATCH …/{group}
    GET   /subscriptions/{s}[/resourceGroups/{group}]/resources
"""

from __future__ import annotations

import enum
import re
from typing import Any, NamedTuple
from urllib.parse import unquote

from oncebus.protocols.arm.errors import ArmRefused
from oncebus.protocols.management.writing import GROUP, LOCATION, SUBSCRIPTION, TENANT
from oncebus.values.errors import clip

DISPLAY_NAME = "Oncebus"

_VERSIONS = ["2024-01-01", "2022-10-01-preview", "2022-01-01-preview", "2021-11-01", "2021-06-01-preview", "2017-04-01"]
_TYPES = {
    "Microsoft.ServiceBus": (
        "namespaces",
        "namespaces/authorizationRules",
        "namespaces/networkRuleSets",
        "namespaces/queues",
        "namespaces/queues/authorizationRules",
        "namespaces/topics",
        "namespaces/topics/authorizationRules",
        "namespaces/topics/subscriptions",
        "namespaces/topics/subscriptions/rules",
    ),
    "Microsoft.Resources": ("deployments", "deployments/operations", "resourceGroups", "subscriptions"),
}

Content = dict[str, Any]


class HostingKind(enum.Enum):
    """What a path names."""

    TENANTS = enum.auto()
    SUBSCRIPTIONS = enum.auto()
    SUBSCRIPTION = enum.auto()
    LOCATIONS = enum.auto()
    PROVIDERS = enum.auto()
    PROVIDER = enum.auto()
    REGISTER = enum.auto()
    GROUPS = enum.auto()
    GROUP = enum.auto()
    RESOURCES = enum.auto()


class HostingName(NamedTuple):
    """The parts of a path. Those that it does not have are empty."""

    kind: HostingKind
    subscription: str = ""
    group: str = ""
    provider: str = ""


_S = "/subscriptions/(?P<subscription>[^/]+)"
_G = f"{_S}/resourcegroups/(?P<group>[^/]+)"
_P = f"(?:{_S})?/providers"
_PATHS = tuple(
    (kind, re.compile(f"{pattern}/?", re.IGNORECASE))
    for kind, pattern in (
        (HostingKind.TENANTS, "/tenants"),
        (HostingKind.SUBSCRIPTIONS, "/subscriptions"),
        (HostingKind.SUBSCRIPTION, _S),
        (HostingKind.LOCATIONS, f"{_S}/locations"),
        (HostingKind.PROVIDERS, _P),
        (HostingKind.PROVIDER, f"{_P}/(?P<provider>[^/]+)"),
        (HostingKind.REGISTER, f"{_P}/(?P<provider>[^/]+)/register"),
        (HostingKind.GROUPS, f"{_S}/resourcegroups"),
        (HostingKind.GROUP, _G),
        (HostingKind.RESOURCES, f"{_S}(?:/resourcegroups/(?P<group>[^/]+))?/resources"),
    )
)


def find_hosting(raw_path: bytes) -> HostingName | None:
    """Parse a path; return None if it names nothing that surrounds a namespace."""
    text = raw_path.decode("latin-1")
    for kind, pattern in _PATHS:
        if (found := pattern.fullmatch(text)) is not None:
            return HostingName(kind, **{name: unquote(part or "") for name, part in found.groupdict().items()})
    return None


def describe(target: HostingName) -> Content:
    """Return what a path names, except for a list of resources. Raises `ArmRefused` for a provider that is not here."""
    subscription = target.subscription or SUBSCRIPTION
    match target.kind:
        case HostingKind.TENANTS:
            return {"value": [_tenant()]}
        case HostingKind.SUBSCRIPTIONS:
            return {"value": [_subscription(subscription)]}
        case HostingKind.SUBSCRIPTION:
            return _subscription(subscription)
        case HostingKind.LOCATIONS:
            return {"value": [_location(subscription)]}
        case HostingKind.PROVIDERS:
            return {"value": [_provider(subscription, name) for name in _TYPES]}
        case HostingKind.GROUPS:
            return {"value": [_group(subscription, GROUP)]}
        case HostingKind.GROUP:
            return _group(subscription, target.group)
    name = next((each for each in _TYPES if each.lower() == target.provider.lower()), None)
    if name is None:
        text = f"The resource provider {clip(target.provider)} is not here. There are {', '.join(_TYPES)}."
        raise ArmRefused(404, "InvalidResourceNamespace", text)
    return _provider(subscription, name)


def _tenant() -> Content:
    return {
        "id": f"/tenants/{TENANT}",
        "tenantId": TENANT,
        "displayName": DISPLAY_NAME,
        "tenantCategory": "Home",
        "domains": [],
    }


def _subscription(subscription: str) -> Content:
    return {
        "id": f"/subscriptions/{subscription}",
        "subscriptionId": subscription,
        "tenantId": TENANT,
        "displayName": DISPLAY_NAME,
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "subscriptionPolicies": {"locationPlacementId": "Public", "quotaId": "None", "spendingLimit": "Off"},
    }


def _location(subscription: str) -> Content:
    return {
        "id": f"/subscriptions/{subscription}/locations/{LOCATION}",
        "name": LOCATION,
        "displayName": LOCATION,
        "regionalDisplayName": LOCATION,
        "metadata": {"regionType": "Physical", "regionCategory": "Recommended"},
    }


def _group(subscription: str, group: str) -> Content:
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{group}",
        "name": group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": LOCATION,
        "properties": {"provisioningState": "Succeeded"},
    }


def _provider(subscription: str, name: str) -> Content:
    types = [
        {"resourceType": each, "locations": [LOCATION], "apiVersions": _VERSIONS, "capabilities": "None"}
        for each in _TYPES[name]
    ]
    return {
        "id": f"/subscriptions/{subscription}/providers/{name}",
        "namespace": name,
        "registrationState": "Registered",
        "registrationPolicy": "RegistrationRequired",
        "resourceTypes": types,
    }
