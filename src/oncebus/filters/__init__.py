"""Service Bus rules: the SQL filter and action languages, correlation filters, and the copies a subscription gets."""

from oncebus.filters.action import Action, Failure, parse_action
from oncebus.filters.errors import BadRule
from oncebus.filters.filter import (
    FALSE,
    MATCH,
    NO_MATCH,
    TRUE,
    BooleanFilter,
    CorrelationFilter,
    Filter,
    Outcome,
    SqlFilter,
    Verdict,
    parse_filter,
)
from oncebus.filters.properties import SYSTEM_NAMES, Duration, Properties, Timestamp, Value
from oncebus.filters.routing import RULE_NAME, Copy, Routed, Rule, RuleFailure, copies

__all__ = [
    "FALSE",
    "MATCH",
    "NO_MATCH",
    "RULE_NAME",
    "SYSTEM_NAMES",
    "TRUE",
    "Action",
    "BadRule",
    "BooleanFilter",
    "Copy",
    "CorrelationFilter",
    "Duration",
    "Failure",
    "Filter",
    "Outcome",
    "Properties",
    "Routed",
    "Rule",
    "RuleFailure",
    "SqlFilter",
    "Timestamp",
    "Value",
    "Verdict",
    "copies",
    "parse_action",
    "parse_filter",
]
