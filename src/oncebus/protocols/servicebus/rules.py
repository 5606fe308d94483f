"""Translates the rules of subscriptions. Requests hold them as maps, answers as described lists:

    rule            0x13700000004   filter, action, name, created at
    no action       0x13700000005   (empty)
    SQL action      0x13700000006   expression, compatibility level
    SQL filter      0x1370000006    expression, compatibility level
    true filter     0x1370000007    (empty)
    false filter    0x1370000008    (empty)
    correlation     0x1370000009    correlation id, message id, to, reply to, label, session id, reply-to session id,
                                    content type, properties (map)

The filters' codes have one digit fewer. That is not a mistake: clients expect it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from oncebus.amqp.head import DATE, TICKS_AT_1970, URI
from oncebus.amqp.types import Described, Int, Long, Symbol, Timestamp, ULong
from oncebus.model.entities import (
    BadRequest,
    CorrelationFilter,
    FalseFilter,
    Filter,
    FilterValue,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from oncebus.model.entities.descriptions import CORRELATION_FIELDS
from oncebus.protocols.servicebus.messages import timestamp

RULE = ULong(0x13700000004)
NO_ACTION = ULong(0x13700000005)
SQL_ACTION = ULong(0x13700000006)
SQL_FILTER = ULong(0x1370000006)
TRUE_FILTER = ULong(0x1370000007)
FALSE_FILTER = ULong(0x1370000008)
CORRELATION_FILTER = ULong(0x1370000009)

# In the order of the described list.
_CORRELATION = {field.replace("_", "-"): field for field in CORRELATION_FIELDS}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_SPAN = Symbol("com.microsoft:timespan")


def rule_of(name: str, description: Any) -> Rule:
    """Return the rule of an add-rule request, from the map in `rule-description`. Raises `BadRequest`."""
    given = _map(description, "rule-description")
    sql, correlation = given.get("sql-filter"), given.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise BadRequest("The argument 'rule-description' must contain 'sql-filter' or 'correlation-filter'.")
    chosen: Filter
    if sql is not None:
        chosen = SqlFilter(_expression(sql, "sql-filter"))
    else:
        chosen = _correlation(_map(correlation, "correlation-filter"))
    action = given.get("sql-rule-action")
    return Rule(name, chosen, None if action is None else SqlAction(_expression(action, "sql-rule-action")))


def describe_rule(rule: Rule) -> Described:
    """Return the rule as a described list, for an answer to enumerate-rules."""
    action = Described(NO_ACTION, [])
    if rule.action is not None:
        action = Described(SQL_ACTION, [rule.action.expression, Int(rule.action.compatibility_level)])
    return Described(RULE, [_describe_filter(rule.filter), action, rule.name, timestamp(rule.created_at)])


def _describe_filter(given: Filter) -> Described:
    match given:
        case SqlFilter():
            return Described(SQL_FILTER, [given.expression, Int(given.compatibility_level)])
        case TrueFilter():
            return Described(TRUE_FILTER, [])
        case FalseFilter():
            return Described(FALSE_FILTER, [])
    fields: list[object] = [getattr(given, field) for field in _CORRELATION.values()]
    return Described(CORRELATION_FILTER, [*fields, {name: _to_amqp(value) for name, value in given.properties}])


def _correlation(given: Mapping[Any, Any]) -> CorrelationFilter:
    fields: dict[str, str] = {}
    for name, field in _CORRELATION.items():
        value = given.get(name)
        if value is not None:
            fields[field] = _text(value, name)
    properties = given.get("properties")
    own = [] if properties is None else list(_map(properties, "properties").items())
    return CorrelationFilter(
        **fields, properties=tuple((_text(name, "properties"), _from_amqp(str(name), value)) for name, value in own)
    )


def _expression(given: Any, name: str) -> str:
    return _text(_map(given, name).get("expression"), "expression")


def _map(value: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"The argument '{name}' has value {value!r:.100}. Not a map.")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"The argument '{name}' has value {value!r:.100}. Not a string.")
    return str(value)


def _from_amqp(name: str, value: Any) -> FilterValue:
    """Convert the value of a correlation filter's property to a type that rules have.

    Raises `BadRequest` if there is none.
    """
    try:
        match value:
            case bool() | UUID():
                return value
            case Timestamp():
                return _EPOCH + timedelta(milliseconds=value)
            case int():
                # Other widths have a type of their own.
                return Long(value) if type(value) is int else value
            case float():
                return value
            case str():
                return str(value)
            case bytes():
                return bytes(value)
            case Described(descriptor, int() as ticks) if descriptor == _TIME_SPAN:
                return timedelta(microseconds=_microseconds(ticks))
            case Described(descriptor, int() as ticks) if descriptor == DATE:
                return _EPOCH + timedelta(microseconds=_microseconds(ticks - TICKS_AT_1970))
            case Described(descriptor, str() as uri) if descriptor == URI:
                return str(uri)
    except OverflowError:
        pass
    raise BadRequest(
        f"The property '{name}' of the correlation filter has value {value!r:.100}. It cannot be compared."
    )


def _microseconds(ticks: int) -> int:
    """Return ticks of 100 ns as microseconds, towards zero: floats would round the largest ones up."""
    return ticks // 10 if ticks >= 0 else -(-ticks // 10)


def _to_amqp(value: FilterValue) -> object:
    match value:
        case datetime():
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return Timestamp((aware - _EPOCH) // timedelta(milliseconds=1))
        case timedelta():
            return Described(_TIME_SPAN, value // timedelta(microseconds=1) * 10)
        case Decimal():
            return float(value)
    return value
