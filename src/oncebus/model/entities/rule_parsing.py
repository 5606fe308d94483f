"""Compiles the description of a rule, so that it can be evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from oncebus.model.entities.descriptions import (
    CORRELATION_FIELDS,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlFilter,
    TrueFilter,
)
from oncebus.model.entities.filter_values import FilterValue, Parameters
from oncebus.model.entities.names import property_name
from oncebus.model.filters.action import parse_action
from oncebus.model.filters.errors import BadRule
from oncebus.model.filters.filter import FALSE, TRUE, Condition, correlate, parse_filter
from oncebus.model.filters.properties import Duration, Instant
from oncebus.model.filters.routing import CompiledRule


def compile_rule(rule: Rule) -> CompiledRule:
    """Return a rule that can be evaluated. Raises `BadRule` if its filter or action cannot be parsed."""
    action = None
    if rule.action is not None:
        with _about("action"):
            action = parse_action(rule.action.expression, _values(rule.action.parameters))
    with _about("filter"):
        return CompiledRule(rule.name, _condition(rule.filter), action)


@contextmanager
def _about(field: str) -> Iterator[None]:
    try:
        yield
    except BadRule as error:
        error.field = field
        raise


def _condition(given: Filter) -> Condition:
    match given:
        case SqlFilter():
            return parse_filter(given.expression, _values(given.parameters))
        case CorrelationFilter():
            texts = {property_name(field): getattr(given, field) for field in CORRELATION_FIELDS}
            system = {name: text for name, text in texts.items() if text is not None}
            return correlate(system, _values(given.properties))
        case TrueFilter():
            return TRUE
        case FalseFilter():
            return FALSE


def _values(parameters: Parameters) -> dict[str, object]:
    return {name: _value(value) for name, value in parameters}


def _value(value: FilterValue) -> object:
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return Instant(since // timedelta(microseconds=1))
    if isinstance(value, timedelta):
        return Duration(value // timedelta(microseconds=1))
    if isinstance(value, float):
        return float(value)
    # Rules know no widths of whole numbers.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
