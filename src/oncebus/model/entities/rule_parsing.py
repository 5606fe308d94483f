"""Turns the description of a rule into a rule that can be evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from oncebus.model import filters
from oncebus.model.entities import descriptions
from oncebus.model.entities.filter_values import FilterValue, Parameters


def check_expressions(rule: descriptions.Rule) -> None:
    """Raise `BadRule` if the rule's filter or action cannot be parsed."""
    parsed_rule(rule)


def parsed_rule(rule: descriptions.Rule) -> filters.Rule:
    """Return a rule that can be evaluated. Raises `BadRule` if its filter or action cannot be parsed."""
    action = None
    if rule.action is not None:
        with _about("action"):
            action = filters.parse_action(rule.action.expression, _values(rule.action.parameters))
    with _about("filter"):
        return filters.Rule(rule.name, _filter(rule.filter), action)


@contextmanager
def _about(field: str) -> Iterator[None]:
    try:
        yield
    except filters.BadRule as error:
        error.field = field
        raise


def _filter(given: descriptions.Filter) -> filters.Filter:
    match given:
        case descriptions.SqlFilter():
            return filters.parse_filter(given.expression, _values(given.parameters))
        case descriptions.CorrelationFilter():
            return filters.CorrelationFilter(
                given.correlation_id,
                given.message_id,
                given.to,
                given.reply_to,
                given.label,
                given.session_id,
                given.reply_to_session_id,
                given.content_type,
                _values(given.properties),
            )
        case descriptions.TrueFilter():
            return filters.TRUE
        case descriptions.FalseFilter():
            return filters.FALSE


def _values(parameters: Parameters) -> dict[str, object]:
    return {name: _value(value) for name, value in parameters}


def _value(value: FilterValue) -> object:
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return filters.Timestamp(since // timedelta(microseconds=1))
    if isinstance(value, timedelta):
        return filters.Duration(value // timedelta(microseconds=1))
    if isinstance(value, float):
        return float(value)
    # Rules know no widths of whole numbers.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
