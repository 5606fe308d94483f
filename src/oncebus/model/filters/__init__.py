"""Service Bus rules: the SQL filter and action languages, correlation filters, and the copies a subscription gets."""

from oncebus.model.filters.action import Action, Failure, parse_action
from oncebus.model.filters.budget import Budget
from oncebus.model.filters.errors import BadRule
from oncebus.model.filters.filter import (
    FALSE,
    MATCH,
    NO_MATCH,
    TRUE,
    BooleanFilter,
    CorrelationFilter,
    Decision,
    Evaluation,
    Filter,
    SqlFilter,
    parse_filter,
)
from oncebus.model.filters.properties import SYSTEM_NAMES, Duration, Properties, Timestamp, Value
from oncebus.model.filters.routing import RULE_NAME, Copy, Routed, Rule, RuleFailure, action_failure, copies

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
    "Budget",
    "Copy",
    "CorrelationFilter",
    "Decision",
    "Duration",
    "Evaluation",
    "Failure",
    "Filter",
    "Properties",
    "Routed",
    "Rule",
    "RuleFailure",
    "SqlFilter",
    "Timestamp",
    "Value",
    "action_failure",
    "copies",
    "parse_action",
    "parse_filter",
]
