"""Reads the bodies of requests. Names and nulls are treated as in `oncebus.protocols.management.reading`."""

from __future__ import annotations

import json

from oncebus.model.access import Rights, WhichKey
from oncebus.model.entities import BadRequest, Subscription, Tier, parse_timespan
from oncebus.model.entities.descriptions import EntityKind
from oncebus.protocols.arm.errors import bad_content
from oncebus.protocols.management.authorization import read_rights
from oncebus.protocols.management.reading import RESOURCE_WINDOW, Members, check_known, members_of, read_text
from oncebus.protocols.untrusted_json import TooDeep, TooManyValues, parse_json
from oncebus.values.errors import clip

_ENVELOPE = ("id", "name", "type", "location", "tags", "systemdata", "properties")
# Settings of Azure's hosting. They mean nothing here, and ignoring them does no harm.
_HOSTING = {
    "minimumtlsversion",
    "zoneredundant",
    "publicnetworkaccess",
    "premiummessagingpartitions",
    "platformcapabilities",
    "geodatareplication",
    "ipaddresstype",
    "alternatename",
    "provisioningstate",
    "status",
    "createdat",
    "updatedat",
    "servicebusendpoint",
    "metricid",
}


_PROMISES = {"encryption", "privateendpointconnections", "disablelocalauth"}
MOST_TAGS, LONGEST_TAG_NAME, LONGEST_TAG = 50, 512, 256
"""Limits of a namespace's tags. They are the Resource Manager's."""


def read_object(body: bytes) -> Members:
    """Return the JSON object in a body; an empty one for an empty body. Raises `ArmRefused`."""
    try:
        content = parse_json(body or b"{}", parse_constant=_no_constant)
        json.dumps(content, ensure_ascii=False).encode()
    except ValueError as error:
        is_clear = isinstance(error, json.JSONDecodeError | TooDeep | TooManyValues)
        reason = error if is_clear else "it contains an invalid text or number"
        raise bad_content(f"The body of the request is not JSON: {reason}.") from None
    return members_of(content, "The body of the request")


def properties_of(body: Members, *more: str) -> Members:
    """Return the properties in the body of a resource.

    `more` names members that are allowed in addition to the usual ones.
    """
    check_known(body, (*_ENVELOPE, *more), "The member", "Properties of an entity belong below 'properties'.")
    return members_of(body.get("properties", {}), "The member 'properties'")


def read_window(properties: Members, kind: EntityKind) -> int | None:
    """Return the window that a subscription's properties set, or None. The caller checks that it equals the topic's."""
    given = properties.get(RESOURCE_WINDOW.lower()) if kind is Subscription else None
    return None if given is None else parse_timespan(read_text(given, RESOURCE_WINDOW), RESOURCE_WINDOW)


# The namespace, its rules and keys


def read_tier(body: Members) -> Tier | None:
    """Return the tier in the description of a namespace, or None. Raises `BadRequest`."""
    properties = properties_of(body, "sku", "identity", "etag")
    check_known(properties, _HOSTING | _PROMISES)
    kind = members_of(body.get("identity", {}), "The member 'identity'").get("type", "None")
    if str(kind).lower() != "none":
        raise BadRequest(f"The type of the identity has value {clip(kind)}. Identities are not supported.")
    replication = members_of(properties.get("geodatareplication", {}), "The property 'geoDataReplication'")
    if replication.get("locations"):
        raise BadRequest(f"The property 'geoDataReplication' has value {clip(replication)}. It is not supported.")
    for name in _PROMISES:
        # Ignoring these silently would promise what does not exist.
        if properties.get(name):
            written = properties.written[name]
            raise BadRequest(f"The property {clip(written)} has value {clip(properties[name])}. It is not supported.")
    sku = members_of(body.get("sku", {}), "The member 'sku'")
    check_known(sku, ("name", "tier", "capacity"))
    # The name wins, because az sends a new name with the old tier.
    wanted = next((sku[key] for key in ("name", "tier") if key in sku), None)
    for tier in Tier:
        if str(wanted).lower() == tier.lower():
            return tier
    if wanted is not None:
        raise BadRequest(f"The sku has the name {clip(str(wanted).lower())}. Not one of {', '.join(Tier)}.")
    return None


def read_tags(body: Members) -> tuple[tuple[str, str], ...] | None:
    """Return the tags in the description of a namespace, or None if it has none. Raises `BadRequest`."""
    tags = body.get("tags")
    if tags is None:
        return None
    if not isinstance(tags, dict) or len(tags) > MOST_TAGS:
        raise BadRequest(f"The member 'tags' has value {clip(tags)}. Not an object with at most {MOST_TAGS} texts.")
    for name, value in tags.items():
        if not isinstance(value, str) or len(value) > LONGEST_TAG or not 0 < len(name) <= LONGEST_TAG_NAME:
            raise BadRequest(
                f"The tag {clip(name)} has value {clip(value)}. A tag is a text of at most {LONGEST_TAG} characters, "
                f"and its name has 1 to {LONGEST_TAG_NAME}."
            )
    return tuple(tags.items())


def read_rule_rights(body: Members) -> Rights:
    """Return the rights in the description of an authorization rule. Raises `BadRequest`."""
    properties = properties_of(body)
    check_known(properties, ("rights",))
    rights = properties.get("rights", [])
    if not isinstance(rights, list):
        raise BadRequest(f"The property 'rights' has value {clip(rights)}. Not a list.")
    return read_rights(rights)


def read_new_key(body: Members) -> tuple[WhichKey, str | None]:
    """Return which key to replace, and the new key, or None for a random one. Raises `BadRequest`."""
    check_known(body, ("keytype", "key"))
    wanted = str(body.get("keytype", ""))
    key = body.get("key")
    for which in WhichKey:
        if wanted.lower() == which.lower():
            if key is not None and not isinstance(key, str):
                raise BadRequest("The property 'key' is not a text.")
            return which, key
    raise BadRequest(f"The property 'keyType' has value {clip(wanted)}. Not one of {', '.join(WhichKey)}.")


def read_name(body: Members) -> str:
    """Return the name whose availability a request asks for."""
    check_known(body, ("name", "type"))
    return read_text(body.get("name"), "name")


def _no_constant(name: str) -> float:
    raise ValueError(name)
