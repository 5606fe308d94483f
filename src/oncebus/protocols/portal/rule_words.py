"""Describes a subscription's rule in words."""

from __future__ import annotations

from datetime import datetime, timedelta

from oncebus.model.entities import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from oncebus.model.entities.filter_values import Parameters
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.management.rules import CORRELATED
from oncebus.protocols.portal.markup import Content, Markup, tag

TITLES = {field: "Label (subject)" if field == "label" else name for name, field in CORRELATED.items()}
"""Labels of the fields that a correlation filter compares."""


def rule_in_words(rule: Rule) -> Markup:
    """Describe in words which messages a rule matches and how it changes them."""
    given = rule.filter
    match given:
        case SqlFilter():
            lines = [_line("SQL filter", tag("code", given.expression), given.parameters)]
        case CorrelationFilter():
            equal = [
                tag("li", f"{title} = ", tag("code", getattr(given, field)))
                for field, title in TITLES.items()
                if getattr(given, field) is not None
            ]
            equal += [tag("li", f"{name} = ", tag("code", _value(value))) for name, value in given.properties]
            lines = [tag("p", "Correlation filter"), tag("ul", equal or tag("li", "nothing: it takes all messages"))]
        case TrueFilter():
            lines = [tag("p", "Takes all messages")]
        case FalseFilter():
            lines = [tag("p", "Takes no message")]
    if rule.action is not None:
        lines.append(_action(rule.action))
    return tag("div", lines, class_="rule")


def _action(action: SqlAction) -> Markup:
    return _line("Action", tag("code", action.expression), action.parameters)


def _line(title: str, content: Content, parameters: Parameters) -> Markup:
    named = [tag("li", f"{name} = ", tag("code", _value(value))) for name, value in parameters]
    return tag("div", tag("p", f"{title} ", content), tag("ul", named) if named else None)


def _value(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case bool():
            return str(value).lower()
        case bytes():
            return f"0x{value.hex()}"
        case datetime():
            return value.isoformat()
        case timedelta():
            return in_words(value // timedelta(microseconds=1))
    return str(value)
