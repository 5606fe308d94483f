from __future__ import annotations

from dataclasses import replace

import pytest

from oncebus.entities import AuthorizationRule, EntityError, Kind, Queue, Right
from oncebus.entities.authorization import check_authorization_rules

ALL = frozenset(Right)
RULE = AuthorizationRule("reader", frozenset({Right.LISTEN}), "secret-one", "secret-two")


def test_keys_show_up_in_no_repr() -> None:
    assert "secret" not in repr(RULE)
    assert "secret" not in repr(Queue(name="orders", authorization_rules=(RULE,)))
    assert "reader" in repr(RULE)


def test_a_rule_allows_its_rights_only() -> None:
    assert [right for right in Right if RULE.allows(right)] == [Right.LISTEN]
    assert all(replace(RULE, rights=ALL).allows(right) for right in Right)


@pytest.mark.parametrize(
    "rights",
    [{Right.SEND}, {Right.LISTEN}, {Right.SEND, Right.LISTEN}, ALL],
)
def test_rights_that_belong_together_are_taken(rights: set[Right]) -> None:
    check_authorization_rules([replace(RULE, rights=frozenset(rights))])


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([replace(RULE, name="")], "An authorization rule must have a name.\nParameter name: KeyName"),
        (
            [replace(RULE, name="n" * 257)],
            f"The authorization rule name '{'n' * 257}' exceeds the '256' character limit.\nParameter name: KeyName",
        ),
        (
            [replace(RULE, rights=frozenset())],
            "The authorization rule 'reader' must have at least one right.\nParameter name: Rights",
        ),
        (
            [replace(RULE, rights=frozenset({Right.MANAGE}))],
            "Manage permission should also include Send and Listen.\nParameter name: Rights",
        ),
        (
            [replace(RULE, rights=frozenset({Right.MANAGE, Right.SEND}))],
            "Manage permission should also include Send and Listen.\nParameter name: Rights",
        ),
        (
            [replace(RULE, primary_key="")],
            "The authorization rule 'reader' must have a key.\nParameter name: PrimaryKey",
        ),
        (
            [replace(RULE, secondary_key="k" * 257)],
            "The key of the authorization rule 'reader' exceeds the '256' character limit."
            "\nParameter name: SecondaryKey",
        ),
        ([RULE, replace(RULE, name="Reader")], "The authorization rule name 'Reader' is used more than once."),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: list[AuthorizationRule], text: str) -> None:
    with pytest.raises(EntityError) as raised:
        check_authorization_rules(rules)
    assert (raised.value.kind, raised.value.sub_code, raised.value.text) == (Kind.BAD_REQUEST, 40000, text)


def test_an_entity_has_at_most_twelve_rules() -> None:
    rules = [replace(RULE, name=f"rule{number}") for number in range(13)]
    check_authorization_rules(rules[:12])
    with pytest.raises(EntityError) as raised:
        check_authorization_rules(rules)
    assert raised.value.kind is Kind.QUOTA
    assert raised.value.text == "The entity has 13 authorization rules, but at most 12 are allowed."
