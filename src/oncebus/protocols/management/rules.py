"""Rules of subscriptions in JSON, as the Resource Manager, templates and files write them.

{"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "price > 9"}, "action": {"sqlExpression": "SET a = 1"}}
{"filterType": "CorrelationFilter", "correlationFilter": {"label": "red", "properties": {"size": 3}}, "action": {}}
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

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
from oncebus.model.entities.filter_values import type_and_text
from oncebus.model.entities.names import property_name
from oncebus.protocols.management.properties import ValueType, bad_value
from oncebus.protocols.management.reading import MOST_INTEGER, Members, NotAnObject, check_known, members_of, read_text
from oncebus.values.errors import clip

TRUE_EXPRESSION = "1=1"
FALSE_EXPRESSION = "1=0"
"""The SQL expressions for filters that match every message or none, where only SQL can be written."""

CORRELATED = {property_name(field): field for field in CORRELATION_FIELDS}
"""The system properties that a correlation filter can compare: fields by the service's names."""


def read_rule(properties: Members, name: str) -> Rule:
    """Return the rule that properties describe. Without a filter it matches every message. Raises `BadRequest`."""
    check_known(properties, ("action", "filtertype", "sqlfilter", "correlationfilter"))
    kinds = {"sqlfilter": "SqlFilter", "correlationfilter": "CorrelationFilter"}
    given = [kind for member, kind in kinds.items() if member in properties]
    wanted = properties.get("filtertype")
    if wanted is not None and str(wanted).lower() not in kinds:
        raise BadRequest(f"The property 'filterType' has value {clip(wanted)}. Not one of {', '.join(kinds.values())}.")
    if wanted is None and len(given) > 1:
        raise BadRequest("A rule has a 'sqlFilter' or a 'correlationFilter', not both.")
    chosen = str(wanted).lower() if wanted is not None else (given[0].lower() if given else "sqlfilter")
    content = members_of(properties.get(chosen, {}), f"The property '{kinds[chosen]}'")
    action = members_of(properties.get("action", {}), "The property 'action'")
    return Rule(name, _sql_filter(content) if chosen == "sqlfilter" else _correlation(content), _action(action))


def rule_properties(rule: Rule) -> dict[str, Any]:
    """Return the filter and the action of a rule as JSON.

    Filters that match all or no messages become SQL expressions.
    """
    properties: dict[str, Any] = {"action": _written_sql(rule.action) if rule.action is not None else {}}
    match rule.filter:
        case CorrelationFilter() as given:
            texts = {name[0].lower() + name[1:]: getattr(given, field) for name, field in CORRELATED.items()}
            properties["filterType"] = "CorrelationFilter"
            properties["correlationFilter"] = {
                **{name: text for name, text in texts.items() if text is not None},
                "properties": {name: _write_value(value) for name, value in given.properties},
            }
        case SqlFilter() as given:
            properties |= {"filterType": "SqlFilter", "sqlFilter": _written_sql(given)}
        case given:
            expression = FALSE_EXPRESSION if isinstance(given, FalseFilter) else TRUE_EXPRESSION
            properties |= {"filterType": "SqlFilter", "sqlFilter": _written_sql(SqlFilter(expression))}
    return properties


def with_old_values(new: Rule, old: Rule) -> Rule:
    """Return the new rule, but with the old filter or action if the new one looks the same in JSON.

    JSON cannot hold parameters, nor the types of a correlation filter's values. Keeping the old objects preserves them.
    """
    now, before = rule_properties(new), rule_properties(old)
    kept = replace(new, action=old.action) if now.pop("action") == before.pop("action") else new
    return replace(kept, filter=old.filter) if now == before else kept


def _sql_filter(given: Members) -> Filter:
    expression, level, is_preprocessed = _sql(given)
    # JSON has no other way to write these two filters.
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
        raise bad_value(level, "compatibilityLevel", ValueType.NUMBER)
    if not isinstance(is_preprocessed, bool):
        raise bad_value(is_preprocessed, "requiresPreprocessing", ValueType.FLAG)
    return None if expression is None else read_text(expression, "sqlExpression"), level, is_preprocessed


def _correlation(given: Members) -> CorrelationFilter:
    known = {name.lower(): (name, field) for name, field in CORRELATED.items()}
    check_known(given, (*known, "properties", "requirespreprocessing"))
    texts = {field: read_text(given[key], name) for key, (name, field) in known.items() if key in given}
    properties = given.get("properties", {})
    if not isinstance(properties, dict):
        raise NotAnObject("The property 'properties'", properties)
    values = tuple((name, _value(name, value)) for name, value in properties.items())
    return CorrelationFilter(**texts, properties=values)


def _value(name: str, value: object) -> FilterValue:
    if isinstance(value, str | bool) or (isinstance(value, int) and abs(value) <= MOST_INTEGER):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise BadRequest(f"The value of {clip(name)} is {clip(value)}. Not a text, a number, true or false.")


def _written_sql(given: SqlFilter | SqlAction) -> dict[str, Any]:
    return {
        "sqlExpression": given.expression,
        "compatibilityLevel": given.compatibility_level,
        "requiresPreprocessing": given.requires_preprocessing,
    }


def _write_value(value: FilterValue) -> str | int | float | bool:
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int) else type_and_text(value)[1]
