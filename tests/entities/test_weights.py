from __future__ import annotations

from oncebus.entities import Rule, SqlAction
from oncebus.entities.weights import copies_by_topic, weight
from pipeline.judged_rows import TOPIC, catalogue


def test_the_weight_grows_with_the_copies_beyond_a_few() -> None:
    assert [weight(1000, copies) for copies in (0, 1, 8, 9, 80)] == [1000, 1000, 1000, 1125, 10_000]
    marked = Rule("marked", action=SqlAction("SET a = 1"))
    assert copies_by_topic(catalogue(*[[Rule()]] * 8)) == {}
    assert copies_by_topic(catalogue(*[[Rule(), marked]] * 5)) == {TOPIC: 10}
