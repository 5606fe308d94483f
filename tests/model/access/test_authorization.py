from __future__ import annotations

import importlib
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus.model.access import (
    EMULATOR_RULE,
    AccessRefused,
    AuthorizationRule,
    Grant,
    Operation,
    Reason,
    Right,
    WhichKey,
    connection_string,
    make_token,
)
from oncebus.model.access.authorization import renew, verify
from oncebus.model.access.authorization_rule import BadAuthorizationRule, fresh_rule
from oncebus.model.access.rights import Rights, table
from tests.model.access.actors import (
    HOST,
    LATER,
    LISTENER,
    NAMESPACE,
    NOW,
    OWNER,
    READER,
    ROOT,
    SENDER,
    ask,
    rules_of,
    token,
)

SEND, LISTEN, MANAGE = Operation.SEND, Operation.RECEIVE, Operation.UPDATE_ENTITY
EVERYTHING = f"sb://{HOST}"


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("rule", [ROOT, SENDER, LISTENER])
def test_each_operation_requires_its_right(operation: Operation, rule: AuthorizationRule) -> None:
    if rule is ROOT or operation.right in rule.rights:
        assert ask(token(EVERYTHING, rule), operation).rule == rule.name
        return
    with pytest.raises(AccessRefused) as caught:
        ask(token(EVERYTHING, rule), operation)
    assert (caught.value.reason, caught.value.status) == (Reason.RIGHT, 401)
    assert operation.right in str(caught.value)


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("right", Right)
def test_a_rule_that_is_only_for_metrics_permits_nothing_else_whatever_its_rights(
    operation: Operation, right: Right
) -> None:
    scraper = AuthorizationRule("scraper", frozenset({right}), "scraper-one", "scraper-two", only_metrics=True)
    grant = verify(token(EVERYTHING, scraper), now=NOW, namespace_rules=(ROOT, scraper), rules_of=rules_of, host=HOST)
    assert grant.rights_on("orders") == frozenset()
    if operation is Operation.METRICS:
        grant.require(operation, "", now=NOW)
        return
    for path in ("", "orders"):
        with pytest.raises(AccessRefused) as caught:
            grant.require(operation, path, now=NOW)
        assert caught.value.reason is Reason.RIGHT


def test_a_rule_that_is_only_for_metrics_reads_those_of_the_whole_namespace_until_its_token_expires() -> None:
    scraper = AuthorizationRule("scraper", frozenset({Right.SEND}), "scraper-one", "scraper-two", only_metrics=True)
    rules = (ROOT, scraper)
    grant = verify(token(EVERYTHING, scraper), now=NOW, namespace_rules=rules, rules_of=rules_of, host=HOST)
    with pytest.raises(AccessRefused) as caught:
        grant.require(Operation.METRICS, "", now=LATER)
    assert caught.value.reason is Reason.EXPIRED
    narrow = verify(token(rule=scraper), now=NOW, namespace_rules=rules, rules_of=rules_of, host=HOST)
    with pytest.raises(AccessRefused) as caught:
        narrow.require(Operation.METRICS, "", now=NOW)
    assert caught.value.reason is Reason.AUDIENCE


def test_a_renewed_grant_is_only_for_metrics_if_its_rule_is() -> None:
    scraper = AuthorizationRule("scraper", frozenset({Right.MANAGE}), "scraper-one", "scraper-two", only_metrics=True)
    given = token(EVERYTHING, scraper)
    grant = verify(given, now=NOW, namespace_rules=(scraper,), rules_of=rules_of, host=HOST)
    assert renew(grant, namespace_rules=(scraper,), rules_of=rules_of) is grant
    free = renew(grant, namespace_rules=(replace(scraper, only_metrics=False),), rules_of=rules_of)
    assert free is not None
    free.require(Operation.SEND, "orders", now=NOW)
    limited = renew(free, namespace_rules=(scraper,), rules_of=rules_of)
    assert limited == grant


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (
            Operation.SEND,
            "Unauthorized access. 'Send' claim(s) are required to perform this operation. "
            "Resource: 'sb://bus.example.org/orders'.",
        ),
        (Operation.READ_ENTITY, "Manage,EntityRead claims required for this operation."),
        (Operation.ENUMERATE, "Manage,EntityRead claims required for this operation."),
        (Operation.CREATE_ENTITY, "Authorization failed for specified action: Manage,EntityWrite."),
        (Operation.DELETE_ENTITY, "Authorization failed for specified action: Manage,EntityDelete."),
    ],
)
def test_the_error_for_a_missing_right_has_the_text_of_the_service(operation: Operation, text: str) -> None:
    with pytest.raises(AccessRefused) as caught:
        ask(token(EVERYTHING, LISTENER), operation)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("rule", "resource", "path", "operation", "reason"),
    [
        (READER, "orders", "orders", LISTEN, None),
        (READER, "Orders/", "ORDERS/$DeadLetterQueue", LISTEN, None),
        (READER, "orders", "orders", SEND, Reason.RIGHT),
        (OWNER, "orders", "orders/Subscriptions/s", MANAGE, None),
        (OWNER, "orders/Subscriptions/s", "orders/Subscriptions/s", MANAGE, None),
        (OWNER, "orders/Subscriptions/s", "orders", MANAGE, Reason.AUDIENCE),
        (OWNER, "region/north", "region/north", SEND, None),
        (OWNER, "region/north", "region/south", SEND, Reason.AUDIENCE),
        # The rule belongs to an entity below the token's resource, or beside it.
        (OWNER, "", "orders", SEND, Reason.SIGNATURE),
        (OWNER, "region", "region/north", SEND, Reason.SIGNATURE),
        (OWNER, "orders2", "orders2", SEND, Reason.SIGNATURE),
        (READER, "region/north", "region/north", LISTEN, Reason.SIGNATURE),
        # With a rule of the namespace, the token's resource alone decides.
        (SENDER, "", "region/north", SEND, None),
        (SENDER, "orders", "region/north", SEND, Reason.AUDIENCE),
        (ROOT, "", "", Operation.METRICS, None),
        (ROOT, "orders", "", Operation.METRICS, Reason.AUDIENCE),
        (ROOT, "", "$Resources/queues", Operation.ENUMERATE, None),
        (ROOT, "orders", "orders/../region", SEND, Reason.AUDIENCE),
        (ROOT, "", "a//b", SEND, Reason.AUDIENCE),
    ],
)
def test_a_rule_grants_on_its_entity_and_below(
    rule: AuthorizationRule, resource: str, path: str, operation: Operation, reason: Reason | None
) -> None:
    given = token(f"sb://{HOST}/{resource}", rule)
    if reason is None:
        grant = ask(given, operation, path)
        assert (grant.rule, grant.rights, grant.expires) == (rule.name, rule.rights, LATER)
        return
    with pytest.raises(AccessRefused) as caught:
        ask(given, operation, path)
    assert caught.value.reason is reason


def test_among_rules_with_the_same_name_the_one_that_signed_counts() -> None:
    low = AuthorizationRule("sender", frozenset({Right.LISTEN}), "low-one", "low-two")

    def lookup(path: str) -> list[AuthorizationRule]:
        return [low] if path == "orders" else []

    assert ask(token(rule=low), LISTEN, lookup=lookup).rights == {Right.LISTEN}
    assert ask(token(rule=SENDER), SEND, lookup=lookup).rights == {Right.SEND}
    with pytest.raises(AccessRefused, match="'Send' claim"):
        ask(token(rule=low), SEND, lookup=lookup)


def test_a_grant_can_be_checked_again_without_its_token_and_expires() -> None:
    grant = ask(token(rule=READER), LISTEN)
    grant.require(LISTEN, "orders/$management", now=LATER - 1)
    with pytest.raises(AccessRefused, match="ExpiredToken"):
        grant.require(LISTEN, "orders", now=LATER)
    with pytest.raises(AccessRefused, match="InvalidAudience"):
        grant.require(LISTEN, "orders2", now=NOW)


def test_rules_are_looked_up_in_lower_case_along_the_tokens_path() -> None:
    seen: list[str] = []

    def lookup(path: str) -> list[AuthorizationRule]:
        seen.append(path)
        return list(rules_of(path))

    ask(token(f"sb://{HOST}/Region/North/x", OWNER), SEND, "region/north/X/y", lookup=lookup)
    assert seen == ["region", "region/north", "region/north/x"]


def test_manage_implies_all_rights() -> None:
    assert Rights([Right.MANAGE]) == frozenset({Right.SEND, Right.LISTEN, Right.MANAGE})
    assert Rights([Right.SEND]) == frozenset({Right.SEND})
    assert ROOT.rights == set(Right)


def test_rights_keep_the_order_they_were_given_in() -> None:
    assert Rights([Right.LISTEN, Right.SEND, Right.LISTEN]).order == (Right.LISTEN, Right.SEND)
    assert Rights([Right.MANAGE, Right.LISTEN]).order == (Right.MANAGE, Right.LISTEN, Right.SEND)
    assert Rights({Right.LISTEN, Right.SEND}).order == (Right.SEND, Right.LISTEN)
    given = Rights([Right.LISTEN, Right.SEND])
    assert pickle.loads(pickle.dumps(given)).order == Rights(given).order == given.order


def test_the_table_of_rights_in_the_docs_is_the_one_in_the_code() -> None:
    docs = Path(__file__).parents[3] / "docs" / "reference" / "access.md"
    assert table() in docs.read_text()
    assert len(table().splitlines()) == len(Operation) + 2


@pytest.mark.parametrize("name", ["", ".a", "a-", "a b", "a" * 51, "a/b", "ä", "a\n", "a&skn=b"])
def test_a_rule_needs_a_proper_name(name: str) -> None:
    with pytest.raises(BadAuthorizationRule, match="Authorization rule name"):
        fresh_rule(name, [Right.SEND])


def test_a_rule_needs_rights_and_keys_and_does_not_show_a_bad_one() -> None:
    with pytest.raises(BadAuthorizationRule, match="'a' has no rights"):
        fresh_rule("a", [])
    for key in ("", "has;semicolon", "has space", "k" * 257, "schlüssel"):
        with pytest.raises(BadAuthorizationRule, match="PrimaryKey of authorization rule 'a'") as caught:
            AuthorizationRule("a", frozenset({Right.SEND}), key, "fine")
        assert not key or key not in str(caught.value)


def test_rotating_replaces_one_key() -> None:
    first = ROOT.rotate_key(WhichKey.PRIMARY)
    assert first.primary_key not in (ROOT.primary_key, ROOT.secondary_key)
    assert first.secondary_key == ROOT.secondary_key
    second = ROOT.rotate_key(WhichKey.SECONDARY, "chosen-by-myself")
    assert (second.key(WhichKey.PRIMARY), second.key(WhichKey.SECONDARY)) == (ROOT.primary_key, "chosen-by-myself")
    with pytest.raises(BadAuthorizationRule, match="is too short: it needs at least 16 characters"):
        ROOT.rotate_key(WhichKey.SECONDARY, "chosen-by-mysel")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            connection_string("localhost", 5672, EMULATOR_RULE, emulator=True),
            "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
        ),
        (
            connection_string("bus.example.org", None, SENDER, emulator=False, which=WhichKey.SECONDARY),
            "Endpoint=sb://bus.example.org/;SharedAccessKeyName=sender;SharedAccessKey=sender-two",
        ),
        (
            connection_string("::1", 5671, READER, emulator=False, entity="orders"),
            "Endpoint=sb://[::1]:5671/;SharedAccessKeyName=reader;SharedAccessKey=reader-one;EntityPath=orders",
        ),
    ],
)
def test_a_connection_string_has_the_form_that_clients_read(text: str, expected: str) -> None:
    assert text == expected


def test_the_official_python_client_reads_a_connection_string() -> None:
    handler = importlib.import_module("azure.servicebus._base_handler")
    rule = fresh_rule("reader", [Right.LISTEN])
    text = connection_string("localhost", 5672, rule, emulator=True, entity="orders")
    host, name, key, entity, *_, emulator = handler._parse_conn_str(text)
    assert (host, name, key, entity, emulator) == ("localhost:5672", "reader", rule.primary_key, "orders", True)


@pytest.mark.parametrize(
    ("host", "is_good"),
    [
        ("bus.example.org", True),
        ("BUS.example.org:5671", True),
        ("localhost:5300", True),
        ("127.0.0.1", True),
        ("other.example.org", False),
        ("10.1.2.3", False),
    ],
)
def test_if_the_host_is_known_a_token_must_be_for_that_host_or_this_machine(host: str, is_good: bool) -> None:
    for scheme in ("sb", "urn"):
        given = token(f"{scheme}://{host}/orders")
        if is_good:
            assert ask(given).rule == ROOT.name
        else:
            with pytest.raises(AccessRefused) as refused:
                ask(given)
            assert refused.value.reason is Reason.AUDIENCE
        assert ask(given, host=None).rule == ROOT.name


def test_a_grant_is_renewed_as_long_as_the_rule_has_its_key() -> None:
    grant = ask(make_token(f"sb://{HOST}/orders", OWNER.name, OWNER.secondary_key, LATER))
    assert OWNER.secondary_key not in repr(grant)

    def renewed_with(*rules: AuthorizationRule) -> Grant | None:
        return renew(grant, namespace_rules=NAMESPACE, rules_of=lambda path: rules if path == "orders" else ())

    assert renewed_with(OWNER) == grant
    assert renewed_with(OWNER.rotate_key(WhichKey.PRIMARY)) == grant
    assert renewed_with(OWNER.rotate_key(WhichKey.SECONDARY)) is None
    assert renewed_with() is None
    listens = replace(OWNER, rights=frozenset({Right.LISTEN}))
    assert renewed_with(listens) == replace(grant, rights=listens.rights)
