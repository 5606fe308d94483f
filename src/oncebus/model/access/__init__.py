"""Who may do what: shared access keys, tokens and rights, as Azure Service Bus has them."""

from oncebus.model.access.authorization import Grant
from oncebus.model.access.authorization_rule import (
    EMULATOR_RULE,
    MOST_RULES,
    ROOT_RULE,
    AuthorizationRule,
    WhichKey,
    connection_string,
    fresh_key,
    rule_named,
)
from oncebus.model.access.guard import Guard, NamespaceRules
from oncebus.model.access.issuer import ClaimRule, Issuer, IssuerKey, KeySource
from oncebus.model.access.keys import KeyFile, KeyFileError
from oncebus.model.access.refusal import AccessRefused, Reason
from oncebus.model.access.rights import Operation, Right, Rights
from oncebus.model.access.tokens import make_token
