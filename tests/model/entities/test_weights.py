from __future__ import annotations

import pytest

from oncebus.model.entities import Rule, SqlAction, SqlFilter
from oncebus.model.entities.weights import LIGHT, STEPS_PER_WEIGHT, TopicCost, costs_by_topic, weight
from oncebus.model.filters.budget import STEPS_PER_BYTE, steps_of_messages
from tests.pipeline.judged_rows import TOPIC, catalogue


def test_the_weight_grows_with_the_copies_beyond_a_few() -> None:
    copies = [TopicCost(copies) for copies in (0, 1, 8, 9, 80)]
    assert [weight(1, 1000, each) for each in copies] == [1000, 1000, 1000, 1125, 10_000]
    marked = Rule("marked", action=SqlAction("SET a = 1"))
    assert costs_by_topic(catalogue(*[[Rule()]] * 8)) == {}
    assert costs_by_topic(catalogue(*[[Rule(), marked]] * 5))[TOPIC].copies == 10


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        ("n = 1 OR sys.Label IN ('a', 'b')", None),
        ("a LIKE 'a%' OR b LIKE '%b'", None),
        ("a LIKE '%" + "a_" * 20 + "%'", 44),
        ("a like'%a''_%' escape '!' AND " * 4 + "b = 1", 32),
        # The message gives the pattern.
        ("a LIKE b", STEPS_PER_BYTE),
        ("a LIKE @p", STEPS_PER_BYTE),
    ],
)
def test_the_weight_grows_with_what_the_rules_cost(expression: str, steps: int | None) -> None:
    found = costs_by_topic(catalogue([Rule("costly", SqlFilter(expression))]))
    assert (found[TOPIC].steps_per_byte if found else None) == steps


def test_no_message_weighs_more_than_its_budget() -> None:
    costly, size = TopicCost(1, 40, STEPS_PER_BYTE), 5000
    assert weight(3, 3 * size, LIGHT) == 3 * size
    extra = weight(3, 3 * size, costly) - 3 * size
    assert 5 * 3 * size < extra <= steps_of_messages(3, 3 * size, 40) // STEPS_PER_WEIGHT
