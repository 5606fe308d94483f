"""The cost of rules on a message is bounded, and does not depend on the messages before it."""

from __future__ import annotations

import contextlib

import pytest

from oncebus.model.filters.action import parse_action
from oncebus.model.filters.budget import (
    LEAST_STEPS,
    MOST_STEPS_OF_A_MESSAGE,
    MOST_STEPS_OF_A_RULE,
    STEPS_PER_BYTE,
    STEPS_PER_RULE,
    Budget,
)
from oncebus.model.filters.errors import EvaluationFailure
from oncebus.model.filters.filter import parse_filter
from oncebus.model.filters.properties import MessageProperties
from oncebus.model.filters.routing import CompiledRule, make_copies

LONG = "a" * 200_000
SLOW = "%" + "a_" * 400 + "b%"
"""Nearly all of this pattern matches at each place of a long value."""


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("a LIKE b", {"a": LONG, "b": SLOW}),
        (" OR ".join(["a LIKE b"] * 80), {"a": LONG, "b": SLOW}),
        ("a LIKE '%a_a_a_a_a_a_a_a_a_a_a_a_a_a_b%'", {"a": LONG}),
        (" OR ".join(f"x LIKE p{at}" for at in range(40)), {"x": "a"} | {f"p{at}": "a_" * 512 for at in range(40)}),
        (" OR ".join(["a=b"] * 120), {"a": LONG * 5 + "x", "b": LONG * 5 + "y"}),
        ("a IN (" + ", ".join("b" * 200) + ")", {"a": LONG * 5 + "x", "b": LONG * 5 + "y"}),
        (" OR ".join(["p(a) = 1"] * 80), {"a": LONG}),
        ("A = 1", {f"p{at}": 1 for at in range(300_000)}),
    ],
    ids=["like", "many likes", "constant pattern", "many patterns", "equal", "in", "names", "spelling"],
)
def test_a_filter_that_costs_too_much_fails(text: str, user: dict[str, object]) -> None:
    with pytest.raises(EvaluationFailure, match=f"needs more than {MOST_STEPS_OF_A_RULE:,} steps on this message"):
        parse_filter(text).selects(MessageProperties(user=user))


def test_an_action_that_costs_too_much_fails() -> None:
    text = "; ".join(f"REMOVE P{at}; SET q{at} = 1" for at in range(16))
    few, many = ({f"p{at}": 1 for at in range(size)} for size in (5000, 9000))
    assert parse_action(text).apply(MessageProperties(user=few)).user
    with pytest.raises(EvaluationFailure, match="needs more than"):
        parse_action(text).apply(MessageProperties(user=many))


@pytest.mark.parametrize("value", ["x" * 200_000, b"x" * 200_000], ids=["text", "binary"])
def test_an_action_cannot_make_a_message_many_times_larger(value: object) -> None:
    few, many = (parse_action("; ".join(f"SET b{at} = a" for at in range(count))) for count in (3, 30))
    assert few.apply(MessageProperties(user={"a": value})).user["b2"] == value
    with pytest.raises(EvaluationFailure, match="needs more than"):
        many.apply(MessageProperties(user={"a": value}))


def test_all_rules_together_are_bounded_and_the_cheap_ones_still_work() -> None:
    slow = [CompiledRule(f"slow {at}", parse_filter("a LIKE b OR TRUE = TRUE")) for at in range(200)]
    cheap = CompiledRule("cheap", parse_filter("n = 1"), parse_action("SET sys.Label = 'cheap'"))
    message = MessageProperties(user={"a": "a" * 2000, "b": SLOW, "n": 1})
    routed = make_copies([*slow, cheap], message, b"seed")
    failed = routed.failures
    # Every time, it is the last ones that fail.
    assert 0 < len(failed) < 200
    for at, text in enumerate(failed, 200 - len(failed)):
        assert text.startswith(f"The filter of rule 'slow {at}' failed: ")
    assert f"all rules together need more than {MOST_STEPS_OF_A_MESSAGE:,} steps" in failed[0]
    assert [copy.rule for copy in routed.copies] == [None, "cheap"]
    again = MessageProperties(user=dict(message.user))
    assert make_copies([*slow, cheap], again, b"seed").failures == failed


@pytest.mark.parametrize("size", [0, 1000, 5000, 40_000, 1 << 20])
def test_the_budget_grows_with_the_message(size: int) -> None:
    """The sender chooses value and pattern just below the limit of a rule, and there are many rules."""
    spent: list[int] = []

    class Counting(Budget):
        def spend(self, steps: int) -> None:
            super().spend(steps)
            spent.append(steps)

    most, rules = min(LEAST_STEPS + STEPS_PER_BYTE * size, MOST_STEPS_OF_A_RULE), 100
    budget = Counting(size, rules)
    for _ in range(rules):
        budget.start_rule()
        with contextlib.suppress(EvaluationFailure):
            budget.spend(most)
        with pytest.raises(EvaluationFailure, match=r"needs? more than .* steps"):
            budget.spend(most + 1)
    assert most <= sum(spent) <= LEAST_STEPS + rules * STEPS_PER_RULE + STEPS_PER_BYTE * size
    assert sum(spent) <= MOST_STEPS_OF_A_MESSAGE


def test_refused_work_is_not_charged() -> None:
    budget = Budget()
    for _ in range(100):
        with pytest.raises(EvaluationFailure):
            budget.spend(MOST_STEPS_OF_A_RULE + 1)
    for _ in range(MOST_STEPS_OF_A_MESSAGE // MOST_STEPS_OF_A_RULE):
        budget.spend(MOST_STEPS_OF_A_RULE)
        with pytest.raises(EvaluationFailure):
            budget.spend(1)
        budget.start_rule()
    with pytest.raises(EvaluationFailure, match="all rules together"):
        budget.spend(1)


def test_an_ordinary_message_has_room_for_all_the_rules_of_a_topic() -> None:
    """Evaluate as many SQL filters as a topic can have, on the longest properties that the service takes."""
    user = {f"p{at}": "x" * 100 for at in range(20)} | {"long": "lorem ipsum " * 2700}
    rules = [
        CompiledRule(str(at), parse_filter("p7 LIKE '%y_z%' OR long LIKE 'dolor%' OR P9 = p8 + 'x'"))
        for at in range(2000)
    ]
    size = sum(len(name) + len(value) for name, value in user.items())
    assert not make_copies(rules, MessageProperties(user=user, budget=Budget(size, len(rules))), b"seed").failures
    small = {f"p{at}": "x" * 100 for at in (7, 8, 9)}
    assert not make_copies(rules, MessageProperties(user=small, budget=Budget(300, len(rules))), b"seed").failures
    costly = parse_filter("long LIKE '%sit_amet%' OR long LIKE '%x%' OR long LIKE p1")
    assert not costly.selects(MessageProperties(user={**user, "p1": "%a_b%"}))
