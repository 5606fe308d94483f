"""Features of a namespace in Azure that a broker does not have, as far as tools ask for them:

    N/networkRuleSets[/default]                 one, which allows everything; it can be written as it is
    N/disasterRecoveryConfigs[/{alias}[/…]]     none, and none can be created
    N/migrationConfigurations[/{name}[/…]]
    N/privateEndpointConnections[/{name}]
    N/privateLinkResources
    N/failover

Lists are empty, a single one is not found, and deleting one succeeds. Creating one fails: to ignore it would promise
something that does not exist.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import unquote

from oncebus.model.entities import BadRequest
from oncebus.protocols.arm.errors import ArmRefused
from oncebus.protocols.arm.paths import ResourceKind, ResourceName, resource_of
from oncebus.protocols.arm.resources import identify
from oncebus.protocols.http.errors import wrong_method
from oncebus.protocols.management.reading import Members
from oncebus.protocols.management.writing import LOCATION

_PATH = re.compile(
    r"(?P<namespace>.*/namespaces/[^/]+)/(?P<feature>networkrulesets|disasterrecoveryconfigs|migrationconfigurations"
    r"|privateendpointconnections|privatelinkresources|failover)(?:/(?P<name>[^/]+)(?P<below>/.*)?)?/?",
    re.IGNORECASE,
)
_NETWORK: dict[str, Any] = {
    "publicNetworkAccess": "Enabled",
    "defaultAction": "Allow",
    "trustedServiceAccessEnabled": False,
    "virtualNetworkRules": [],
    "ipRules": [],
}
_METHODS = ("GET", "PUT", "POST", "DELETE")
_NETWORKS = "networkrulesets"
_CHECK_NAME = "checknameavailability"

Content = dict[str, Any]


class AbsentName(NamedTuple):
    """The parts of a path. `feature` is in lower case, `written` as the client wrote it with everything below."""

    namespace: ResourceName
    feature: str
    name: str
    below: str
    written: str


def find_absent(raw_path: bytes) -> AbsentName | None:
    """Parse a path; return None if it names none of these features."""
    match = _PATH.fullmatch(raw_path.decode("latin-1"))
    if match is None:
        return None
    try:
        namespace = resource_of(match["namespace"].encode("latin-1"))
    except ArmRefused:
        return None
    if namespace.resource is not ResourceKind.NAMESPACE:
        return None
    written = unquote(match[0][len(match["namespace"]) + 1 :])
    return AbsentName(namespace, match["feature"].lower(), unquote(match["name"] or ""), match["below"] or "", written)


def answer_absent(target: AbsentName, method: str, body: Members) -> Content | None:
    """Return the answer to a request; None for an empty one. Raises `ArmRefused`, `BadRequest` or `Refused`."""
    if method not in _METHODS:
        raise wrong_method(method, _METHODS)
    if target.feature == _NETWORKS and target.name.lower() in ("", "default") and not target.below:
        return _network(target, method, body)
    if method == "POST" and target.name.lower() == _CHECK_NAME:
        return {"nameAvailable": True, "reason": "None", "message": ""}
    if method == "DELETE":
        return None
    if method == "PUT" or target.feature == "failover":
        raise BadRequest(f"'{target.written}' is not supported: a broker is one namespace, without Azure's network.")
    if target.name:
        raise ArmRefused(404, "ResourceNotFound", f"The resource '{target.written}' could not be found.")
    return {"value": []}


def _network(target: AbsentName, method: str, body: Members) -> Content | None:
    owner = identify(None, target.namespace)
    rules = {
        "id": f"{owner.id}/networkRuleSets/default",
        "name": "default",
        "type": f"{owner.type}/networkRuleSets",
        "location": LOCATION,
        "properties": _NETWORK,
    }
    if method == "PUT" and target.name:
        wanted = body.get("properties")
        known = {name.lower(): value for name, value in _NETWORK.items()}
        for name, value in wanted.items() if isinstance(wanted, dict) else ():
            if value is not None and known.get(name.lower()) != value:
                raise BadRequest(
                    f"The network rule '{name}' is not supported with another value than "
                    f"{known.get(name.lower())}. The setting 'host' and a firewall say who reaches the broker."
                )
        return rules
    if method != "GET":
        raise wrong_method(method, ("GET", "PUT"))
    return rules if target.name else {"value": [rules]}
