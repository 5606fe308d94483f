"""Who may do what: shared access keys, tokens and rights, as Azure Service Bus has them."""

from oncebus.access.authorization import Grant, RulesOf, authorize, renewed, verify
from oncebus.access.authorization_rule import (
    EMULATOR_RULE,
    MOST_RULES,
    ROOT_RULE,
    AuthorizationRule,
    BadAuthorizationRule,
    WhichKey,
    fresh_key,
    fresh_rule,
    rule_named,
)
from oncebus.access.connection import connection_string
from oncebus.access.guard import Guard, NamespaceRules
from oncebus.access.keys import KeyFile, KeyFileError, RuleRefused
from oncebus.access.refusal import AccessRefused, Reason
from oncebus.access.rights import Operation, Right, Rights
from oncebus.access.tokens import make_token

__all__ = [
    "EMULATOR_RULE",
    "MOST_RULES",
    "ROOT_RULE",
    "AccessRefused",
    "AuthorizationRule",
    "BadAuthorizationRule",
    "Grant",
    "Guard",
    "KeyFile",
    "KeyFileError",
    "NamespaceRules",
    "Operation",
    "Reason",
    "Right",
    "Rights",
    "RuleRefused",
    "RulesOf",
    "WhichKey",
    "authorize",
    "connection_string",
    "fresh_key",
    "fresh_rule",
    "make_token",
    "renewed",
    "rule_named",
    "verify",
]
