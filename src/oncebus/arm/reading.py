"""What the body of a request asks for. Names may have any case; what is null is not given; what is unknown is refused,
by its name: a misspelt property would be taken for one that is not given."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from oncebus.access import Right, WhichKey
from oncebus.arm.errors import ArmRefused
from oncebus.atom.authorization import read_rights
from oncebus.atom.given import Given
from oncebus.atom.properties import PROPERTIES, Kind, Property, Value, bad_value, read_status
from oncebus.atom.rules import CORRELATED, FALSE_EXPRESSION, TRUE_EXPRESSION
from oncebus.entities import (
    BadRequest,
    CorrelationFilter,
    FalseFilter,
    Filter,
    FilterValue,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
    parse_timespan,
)
from oncebus.errors import shown

WINDOW = "duplicateDetectionHistoryTimeWindow"


class Members(dict[str, Any]):
    """Those of a JSON object, by their names in lower case. `written` are the names as they came."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.written: dict[str, str] = {}
        for name, member in given.items():
            if self.written.setdefault(name.lower(), name) != name:
                raise BadRequest(f"The property {shown(name)} is given more than once.")
            if member is not None:
                self[name.lower()] = member


_ENVELOPE = ("id", "name", "type", "location", "tags", "systemdata", "properties")
_TOLD = {
    "countdetails",
    "createdat",
    "updatedat",
    "accessedat",
    "sizeinbytes",
    "messagecount",
    "subscriptioncount",
    "entityavailabilitystatus",
}
# Settings of Azure's hosting that mean nothing here, and whose loss harms nobody.
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
_MOST_INTEGER = (1 << 63) - 1

# What the Resource Manager's own descriptions lack: not to name them says nothing.
_NOT_OURS = {"is_anonymous_accessible", "filtering_messages_before_publishing", "user_metadata"}

FIELDS = {
    kind: frozenset(each.field for each in known.values() if each.field not in _NOT_OURS)
    - ({"support_ordering"} if kind is Queue else set())
    for kind, known in PROPERTIES.items()
}
"""The fields that a description here could name."""


def read_object(body: bytes) -> Members:
    """The object that a body holds. Raises `ArmRefused`."""
    try:
        content = json.loads(body or b"{}", parse_constant=_no_constant)
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, json.JSONDecodeError) else "it holds what no text or number can be"
        raise ArmRefused(400, "InvalidRequestContent", f"The body of the request is not JSON: {reason}.") from None
    return members_of(content, "The body of the request")


def members_of(value: object, what: str) -> Members:
    """The members of a JSON object. One that comes twice, in different cases of letters, is refused."""
    if not isinstance(value, dict):
        raise ArmRefused(400, "InvalidRequestContent", f"{what} is {shown(value)}. Not an object.")
    return Members(value)


def properties_of(body: Members, *more: str) -> Members:
    """The properties in a resource. `more` are members that it may have beside the usual ones."""
    check_known(body, (*_ENVELOPE, *more), "The member", "What describes an entity stands below 'properties'.")
    return members_of(body.get("properties", {}), "The member 'properties'")


def check_known(given: Members, known: Iterable[str], what: str = "The property", hint: str = "") -> None:
    """Refuse what has other members."""
    for name in given:
        if name not in known:
            raise BadRequest(f"{what} {shown(given.written[name])} is not known.{' ' if hint else ''}{hint}")


def read_description(properties: Members, kind: type[Queue | Topic | Subscription]) -> Given:
    """What properties ask of an entity."""
    known = {each.camel.lower(): each for each in PROPERTIES[kind].values()}
    more = {"isclientaffine", "clientaffineproperties", WINDOW.lower()} if kind is Subscription else set()
    check_known(properties, {*known, *_TOLD, *more})
    if properties.get("isclientaffine") or properties.get("clientaffineproperties"):
        raise BadRequest("The property 'isClientAffine' is not supported.")
    return Given({each.field: _value(properties[name], each) for name, each in known.items() if name in properties})


def read_window(properties: Members) -> int | None:
    """The window that a subscription's properties name: it can only be the topic's."""
    given = properties.get(WINDOW.lower())
    return None if given is None else parse_timespan(_text(given, WINDOW), WINDOW)


def _value(value: object, about: Property) -> Value:
    name = about.camel
    match about.kind:
        case Kind.FLAG if isinstance(value, bool):
            return value
        case Kind.NUMBER if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_INTEGER:
            return value
        case Kind.SPAN if isinstance(value, str):
            return parse_timespan(value, name)
        case Kind.STATUS if isinstance(value, str):
            return read_status(value, name)
        case Kind.TEXT if isinstance(value, str):
            return value or None
    raise bad_value(value, name, about.kind)


# Rules


def read_rule(properties: Members, name: str) -> Rule:
    """The rule that properties describe. Without a filter it takes all messages."""
    check_known(properties, ("action", "filtertype", "sqlfilter", "correlationfilter"))
    kinds = {"sqlfilter": "SqlFilter", "correlationfilter": "CorrelationFilter"}
    given = [kind for member, kind in kinds.items() if member in properties]
    wanted = properties.get("filtertype")
    if wanted is not None and str(wanted).lower() not in kinds:
        raise BadRequest(
            f"The property 'filterType' has value {shown(wanted)}. Not one of {', '.join(kinds.values())}."
        )
    if wanted is None and len(given) > 1:
        raise BadRequest("A rule has a 'sqlFilter' or a 'correlationFilter', not both.")
    chosen = str(wanted).lower() if wanted is not None else (given[0].lower() if given else "sqlfilter")
    content = members_of(properties.get(chosen, {}), f"The property '{kinds[chosen]}'")
    action = members_of(properties.get("action", {}), "The property 'action'")
    return Rule(name, _sql_filter(content) if chosen == "sqlfilter" else _correlation(content), _action(action))


def _sql_filter(given: Members) -> Filter:
    expression, level, is_preprocessed = _sql(given)
    # There is no other way to write these two.
    if expression in (None, TRUE_EXPRESSION):
        return TrueFilter()
    if expression == FALSE_EXPRESSION:
        return FalseFilter()
    return SqlFilter(expression, (), level, is_preprocessed)


def _action(given: Members) -> SqlAction | None:
    expression, level, is_preprocessed = _sql(given)
    return SqlAction(expression, (), level, is_preprocessed) if expression else None


def _sql(given: Members) -> tuple[str | None, int, bool]:
    check_known(given, ("sqlexpression", "compatibilitylevel", "requirespreprocessing"))
    expression = given.get("sqlexpression")
    level = given.get("compatibilitylevel", 20)
    is_preprocessed = given.get("requirespreprocessing", False)
    if isinstance(level, bool) or not isinstance(level, int):
        raise bad_value(level, "compatibilityLevel", Kind.NUMBER)
    if not isinstance(is_preprocessed, bool):
        raise bad_value(is_preprocessed, "requiresPreprocessing", Kind.FLAG)
    return None if expression is None else _text(expression, "sqlExpression"), level, is_preprocessed


def _correlation(given: Members) -> CorrelationFilter:
    known = {name.lower(): (name, field) for name, field in CORRELATED.items()}
    check_known(given, (*known, "properties", "requirespreprocessing"))
    texts = {field: _text(given[key], name) for key, (name, field) in known.items() if key in given}
    properties = given.get("properties", {})
    if not isinstance(properties, dict):
        raise ArmRefused(
            400, "InvalidRequestContent", f"The property 'properties' is {shown(properties)}. Not an object."
        )
    values = tuple((name, _filter_value(name, value)) for name, value in properties.items())
    return CorrelationFilter(**texts, properties=values)


def _filter_value(name: str, value: object) -> FilterValue:
    if isinstance(value, str | bool) or (isinstance(value, int) and abs(value) <= _MOST_INTEGER):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise BadRequest(f"The value of {shown(name)} is {shown(value)}. Not a text, a number, true or false.")


# The namespace, its rules and keys


def read_tier(body: Members) -> Tier | None:
    """The tier that a namespace is to have, where one is named."""
    properties = properties_of(body, "sku", "identity", "etag")
    check_known(properties, _HOSTING | {"encryption", "privateendpointconnections", "disablelocalauth"})
    for name in ("encryption", "privateendpointconnections", "disablelocalauth"):
        # To take these over in silence would promise a safety that is not there.
        if properties.get(name):
            written = properties.written[name]
            raise BadRequest(f"The property {shown(written)} has value {shown(properties[name])}. It is not supported.")
    sku = members_of(body.get("sku", {}), "The member 'sku'")
    check_known(sku, ("name", "tier", "capacity"))
    names = {str(sku[key]).lower() for key in ("name", "tier") if key in sku}
    if len(names) > 1:
        raise BadRequest(f"The name and the tier of the sku differ: {', '.join(sorted(names))}.")
    for tier in Tier:
        if names == {tier.lower()}:
            return tier
    if names:
        raise BadRequest(f"The sku has the name {shown(names.pop())}. Not one of {', '.join(Tier)}.")
    return None


def read_rule_rights(body: Members) -> frozenset[Right]:
    """The rights that an authorization rule is to have."""
    properties = properties_of(body)
    check_known(properties, ("rights",))
    rights = properties.get("rights", [])
    if not isinstance(rights, list):
        raise BadRequest(f"The property 'rights' has value {shown(rights)}. Not a list.")
    return read_rights(rights)


def read_new_key(body: Members) -> tuple[WhichKey, str | None]:
    """Which key is to be replaced, and by which, where it is given."""
    check_known(body, ("keytype", "key"))
    wanted = str(body.get("keytype", ""))
    key = body.get("key")
    for which in WhichKey:
        if wanted.lower() == which.lower():
            if key is not None and not isinstance(key, str):
                raise BadRequest("The property 'key' is not a text.")
            return which, key
    raise BadRequest(f"The property 'keyType' has value {shown(wanted)}. Not one of {', '.join(WhichKey)}.")


def read_name(body: Members) -> str:
    """The name whose availability is asked for."""
    check_known(body, ("name", "type"))
    return _text(body.get("name"), "name")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise bad_value(value, name, Kind.TEXT)
    return value


def _no_constant(name: str) -> float:
    raise ValueError(name)
