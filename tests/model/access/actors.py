"""Rules, paths and a clock for the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncebus.model.access import AuthorizationRule, Grant, Operation, Right, make_token
from oncebus.model.access.authorization import verify
from oncebus.values.durations import HOUR

NOW = 1_800_000_000_000_000
LATER = NOW + HOUR
HOST = "bus.example.org"

ROOT = AuthorizationRule("RootManageSharedAccessKey", frozenset({Right.MANAGE}), "root-one", "root-two")
SENDER = AuthorizationRule("sender", frozenset({Right.SEND}), "sender-one", "sender-two")
LISTENER = AuthorizationRule("listener", frozenset({Right.LISTEN}), "listener-one", "listener-two")
NAMESPACE = (ROOT, SENDER, LISTENER)

OWNER = AuthorizationRule("owner", frozenset({Right.MANAGE}), "owner-one", "owner-two")
READER = AuthorizationRule("reader", frozenset({Right.LISTEN}), "reader-one", "reader-two")
ENTITIES = {"orders": [OWNER, READER], "region/north": [OWNER]}


def rules_of(path: str) -> Iterable[AuthorizationRule]:
    return ENTITIES.get(path, [])


def token(resource: str = f"sb://{HOST}/orders", rule: AuthorizationRule = ROOT, expires: int = LATER) -> str:
    return make_token(resource, rule.name, rule.primary_key, expires)


def ask(
    given: str | None,
    operation: Operation = Operation.SEND,
    path: str = "orders",
    *,
    now: int = NOW,
    host: str | None = HOST,
    lookup: Callable[[str], Iterable[AuthorizationRule]] = rules_of,
) -> Grant:
    grant = verify(given, now=now, namespace_rules=NAMESPACE, rules_of=lookup, host=host)
    grant.require(operation, path, now=now)
    return grant
