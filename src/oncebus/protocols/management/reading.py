"""Descriptions in JSON, as the Resource Manager, templates and files write them.

Names may have any letter case. A null counts as missing. An unknown name is an error, because a misspelt property would
otherwise be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncebus.model.entities import BadRequest, Subscription, parse_timespan
from oncebus.model.entities.descriptions import EntityKind
from oncebus.protocols.management.given import Given
from oncebus.protocols.management.properties import (
    BY_FIELD,
    PROPERTIES,
    WINDOW,
    Property,
    Value,
    ValueType,
    bad_value,
    read_status,
)
from oncebus.values.errors import OncebusError, clip

MOST_INTEGER = (1 << 63) - 1
RESOURCE_WINDOW = BY_FIELD[WINDOW].camel

# Read-only properties. Clients send back what they read, so these are ignored.
_READ_ONLY = {
    "countdetails",
    "createdat",
    "updatedat",
    "accessedat",
    "sizeinbytes",
    "messagecount",
    "subscriptioncount",
    "entityavailabilitystatus",
}


class NotAnObject(OncebusError, ValueError):
    """A JSON value must be an object, but is not."""

    def __init__(self, what: str, value: object) -> None:
        super().__init__(f"{what} is {clip(value)}. Not an object.")


class Members(dict[str, Any]):
    """The members of a JSON object by lower-case name. `written` has the names as the object spells them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.written: dict[str, str] = {}
        for name, member in given.items():
            if self.written.setdefault(name.lower(), name) != name:
                raise BadRequest(f"The property {clip(name)} is given more than once.")
            if member is not None:
                self[name.lower()] = member


def members_of(value: object, what: str) -> Members:
    """Return the members of a JSON object.

    Raises `NotAnObject` if the value is not an object, and `BadRequest` if two names differ only in letter case. The
    error texts call the value `what`.
    """
    if not isinstance(value, dict):
        raise NotAnObject(what, value)
    return Members(value)


def check_known(given: Members, known: Iterable[str], what: str = "The property", hint: str = "") -> None:
    """Raise `BadRequest` if an object has a member that is not known."""
    for name in given:
        if name not in known:
            raise BadRequest(f"{what} {clip(given.written[name])} is not known.{' ' if hint else ''}{hint}")


def read_description(properties: Members, kind: EntityKind) -> Given:
    """Return the values that the properties set for an entity. Raises `BadRequest`."""
    known = {each.camel.lower(): each for each in PROPERTIES[kind].values()}
    # A subscription's description contains its topic's window too.
    more = {"isclientaffine", "clientaffineproperties", RESOURCE_WINDOW.lower()} if kind is Subscription else set()
    check_known(properties, {*known, *_READ_ONLY, *more})
    if properties.get("isclientaffine") or properties.get("clientaffineproperties"):
        raise BadRequest("The property 'isClientAffine' is not supported.")
    return Given({each.field: _value(properties[name], each) for name, each in known.items() if name in properties})


def _value(value: object, about: Property) -> Value:
    name = about.camel
    match about.type:
        case ValueType.FLAG if isinstance(value, bool):
            return value
        case ValueType.NUMBER if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_INTEGER:
            return value
        case ValueType.SPAN if isinstance(value, str):
            return parse_timespan(value, name)
        case ValueType.STATUS if isinstance(value, str):
            return read_status(value, name)
        case ValueType.TEXT if isinstance(value, str):
            return value or None
    raise bad_value(value, name, about.type)


def read_text(value: object, name: str) -> str:
    """Return the value if it is a string. Otherwise raise `BadRequest`."""
    if not isinstance(value, str):
        raise bad_value(value, name, ValueType.TEXT)
    return value
