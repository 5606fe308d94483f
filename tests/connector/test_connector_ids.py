"""The ids of rows without one: the same in every attempt, and different for every row."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncebus.connector.ids import Ids
from oncebus.connector.rows import LONGEST_ID

Row = dict[str, Any]
rows = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.sampled_from([b"", b"a", b"b", b"ab"]),
            "session_id": st.sampled_from([None, "a", "b"]),
            "application_properties": st.dictionaries(st.sampled_from("xy"), st.sampled_from(["", "1"]), max_size=2),
        }
    ),
    max_size=12,
)


def ids_of(given: list[Row], origin: tuple[str, ...] = ("query", "7"), partition: int = 3) -> list[str]:
    ids = Ids(origin, partition, "query-7")
    return [ids.next_for(row) for row in given]


def content(row: Row) -> str:
    properties = sorted(row["application_properties"].items())
    return f"{row['body']} {row['session_id']} {properties}"


@given(rows, st.randoms(use_true_random=False))
def test_a_repeated_task_gives_the_same_ids_in_any_order(given: list[Row], chance: random.Random) -> None:
    shuffled = list(given)
    chance.shuffle(shuffled)
    first = sorted((content(row), each) for row, each in zip(given, ids_of(given), strict=True))
    again = sorted((content(row), each) for row, each in zip(shuffled, ids_of(shuffled), strict=True))
    assert first == again
    assert len({each for _, each in first}) == len(given)


@given(rows, st.integers(0, 12))
def test_an_attempt_that_ends_early_has_sent_a_part_of_the_same_ids(given: list[Row], ends: int) -> None:
    assert ids_of(given[:ends]) == ids_of(given)[:ends]


def test_query_batch_and_partition_tell_equal_rows_apart() -> None:
    row = [{"body": b"a"}]
    found = {
        *ids_of(row),
        *ids_of(row, origin=("query", "8")),
        *ids_of(row, origin=("other", "7")),
        *ids_of(row, origin=("query7",)),
        *ids_of(row, partition=4),
    }
    assert len(found) == 5


def test_equal_texts_in_other_columns_or_types_are_other_rows() -> None:
    alike: list[Row] = [
        {"body": b"ab"},
        {"body": "ab"},
        {"body": b"a", "subject": "b"},
        {"body": b"a", "to": "b"},
        {"body": b"", "application_properties": {"a": "b"}},
        {"body": b"", "application_properties": {"a": "b", "c": "d"}},
        {"body": b"", "application_properties": {"a": 1}},
        {"body": b"", "application_properties": {"a": True}},
    ]
    assert len({Ids((), 0, "").next_for(row) for row in alike}) == len(alike)


def test_an_id_is_readable_and_never_too_long() -> None:
    (found,) = ids_of([{"body": b"a"}])
    assert found.startswith("query-7-3-")
    longest = Ids((), 10**9, f"{'x' * 64}-{10**12}").next_for({"body": b""})
    assert len(longest) <= LONGEST_ID


def test_a_new_column_without_values_changes_no_id() -> None:
    assert ids_of([{"body": b"a"}]) == ids_of([{"body": b"a", "reply_to": None}])
