from __future__ import annotations

import pytest

from oncebus.model.entities import BadRequest, path_of_address
from oncebus.model.entities.names import check_path, check_rule_name, check_subscription_name

ALLOWED = "Entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores (_)."


@pytest.mark.parametrize(
    "path",
    ["q", "1", "orders", "Orders.New_2-b", "a/b/c", "_a", "Contracts~Order", "subscriptions", "q" * 260],
)
def test_valid_names_of_queues_and_topics_are_accepted(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("", "The entity path is empty."),
        ("q" * 261, f"Entity path '{'q' * 261}' exceeds the '260' character limit."),
        ("/q", "The entity path '/q' cannot contain '/' as prefix or suffix."),
        ("q/", "The entity path 'q/' cannot contain '/' as prefix or suffix."),
        ("a//b", "The entity path 'a//b' contains an empty segment."),
        ("a b", f"'a b' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
        ("a/$management", f"'a/$management' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
        ("ödeme", f"'ödeme' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
        ("a/../b", "'a/../b' contains the segment '..', which an address cannot contain."),
        (".", "'.' contains the segment '.', which an address cannot contain."),
        ("/".join("a" * 65), f"Entity path '{'/'.join('a' * 65)}' has 65 segments; 64 is the limit."),
        ("q\n", f"'q\n' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
        (
            "t/subscriptions/s",
            "The entity path 't/subscriptions/s' contains the segment 'Subscriptions', which is reserved.",
        ),
    ],
)
def test_invalid_names_of_queues_and_topics_are_refused(path: str, text: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check_path(path)
    assert (raised.value.sub_code, str(raised.value)) == (40000, text)


@pytest.mark.parametrize("name", ["s", "S.1_a-b", "s" * 50])
def test_valid_names_of_subscriptions_and_rules_are_accepted(name: str) -> None:
    check_subscription_name(name)
    check_rule_name(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "The entity name is empty."),
        ("s" * 51, f"Entity name '{'s' * 51}' exceeds the '50' character limit."),
        ("a/b", f"'a/b' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
        ("$Other", f"'$Other' contains character(s) that is not allowed by Service Bus. {ALLOWED}"),
    ],
)
def test_invalid_names_of_subscriptions_and_rules_are_refused(name: str, text: str) -> None:
    for check in (check_subscription_name, check_rule_name):
        with pytest.raises(BadRequest) as raised:
            check(name)
        assert str(raised.value) == text


def test_only_a_rule_may_be_called_default() -> None:
    check_rule_name("$Default")
    check_rule_name("$default")
    with pytest.raises(BadRequest):
        check_subscription_name("$Default")


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("orders", "orders"),
        ("/a/b/", "a/b"),
        ("sb://host/a/b", "a/b"),
        ("https://host.example:443/orders/", "orders"),
        ("sb://host", ""),
        ("", ""),
    ],
)
def test_the_path_in_an_address(address: str, path: str) -> None:
    assert path_of_address(address) == path
