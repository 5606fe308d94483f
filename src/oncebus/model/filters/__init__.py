"""Service Bus rules: the SQL filter and action languages, correlation filters, and the copies a subscription gets."""

from oncebus.model.filters.action import Failure, parse_action
from oncebus.model.filters.budget import Budget
from oncebus.model.filters.errors import BadRule
from oncebus.model.filters.filter import (
    FALSE,
    MATCH,
    NO_MATCH,
    TRUE,
    CorrelationFilter,
    Decision,
    Filter,
    parse_filter,
)
from oncebus.model.filters.properties import SYSTEM_NAMES, Duration, Properties, Timestamp
from oncebus.model.filters.routing import Copy, Routed, Rule, action_failure, copies

__all__ = [
    "FALSE",
    "MATCH",
    "NO_MATCH",
    "SYSTEM_NAMES",
    "TRUE",
    "BadRule",
    "Budget",
    "Copy",
    "CorrelationFilter",
    "Decision",
    "Duration",
    "Failure",
    "Filter",
    "Properties",
    "Routed",
    "Rule",
    "Timestamp",
    "action_failure",
    "copies",
    "parse_action",
    "parse_filter",
]
