from __future__ import annotations

from dataclasses import replace

import pytest

from oncebus import access
from oncebus.entities import AuthorizationRule, EntityError, ErrorKind, Queue, Right
from oncebus.entities.authorization import check_authorization_rules

RULE = AuthorizationRule("reader", frozenset({Right.LISTEN}), "secret-one", "secret-two")


def test_entities_and_the_namespace_have_the_same_kind_of_rule() -> None:
    assert (AuthorizationRule, Right) == (access.AuthorizationRule, access.Right)


def test_keys_show_up_in_no_repr() -> None:
    assert "secret" not in repr(RULE)
    assert "secret" not in repr(Queue(name="orders", authorization_rules=(RULE,)))
    assert "reader" in repr(RULE)


def test_a_name_is_used_once_in_any_letter_case() -> None:
    with pytest.raises(EntityError) as raised:
        check_authorization_rules([RULE, replace(RULE, name="Reader")])
    text = "The authorization rule name 'Reader' is used more than once."
    assert (raised.value.kind, raised.value.sub_code, raised.value.text) == (ErrorKind.BAD_REQUEST, 40000, text)


def test_an_entity_has_at_most_twelve_rules() -> None:
    rules = [replace(RULE, name=f"rule{number}") for number in range(13)]
    check_authorization_rules(rules[:12])
    with pytest.raises(EntityError) as raised:
        check_authorization_rules(rules)
    assert raised.value.kind is ErrorKind.QUOTA
    assert raised.value.text == "The entity has 13 authorization rules, but at most 12 are allowed."
