"""The ids of rows without one: the same in every attempt, and different for every row."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from oncebus.connector.ids import Ids, find_shared, first_id
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


def ids_of(given: list[Row], origin: tuple[str, ...] = ("query", "7")) -> list[str]:
    ids = Ids(origin, "query-7")
    return [ids.next_for(row) for row in given]


def contents_of(given: list[Row]) -> bytes:
    ids = Ids(("query", "7"), "query-7")
    for row in given:
        ids.next_for(row)
    return ids.contents()


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


@given(rows, st.data())
def test_ids_are_the_same_however_the_batch_is_cut_unless_equal_rows_are_apart(given: list[Row], data: Any) -> None:
    cut: list[list[Row]] = [[], [], []]
    for row in given:
        cut[data.draw(st.integers(0, 2))].append(row)
    shared = find_shared([contents_of(part) for part in cut])
    apart = {content(row) for row in given if sum(any(content(row) == content(each) for each in p) for p in cut) > 1}
    assert (shared.total if shared else 0) == len(apart)
    if shared is None:
        assert sorted(ids_of(given)) == sorted(each for part in cut for each in ids_of(part))
    else:
        first, second = shared.partitions[:2]
        same = first_id("query-7", shared.content)
        assert same in ids_of(cut[first])
        assert same in ids_of(cut[second])


def test_a_content_that_ends_in_zeros_is_found() -> None:
    zeros, other = b"a" + bytes(15), b"b" * 16
    assert find_shared([zeros, other + zeros]) == (zeros, [0, 1], 1)
    assert find_shared([zeros, other]) is None
    assert find_shared([b"", b""]) is None
    assert find_shared([]) is None


def test_query_and_batch_tell_equal_rows_apart() -> None:
    row = [{"body": b"a"}]
    found = {
        *ids_of(row),
        *ids_of(row, origin=("query", "8")),
        *ids_of(row, origin=("other", "7")),
        *ids_of(row, origin=("query7",)),
    }
    assert len(found) == 4


def test_a_time_has_the_same_id_in_every_time_zone() -> None:
    noon = datetime(2030, 7, 1, 12, tzinfo=UTC)
    zones = (UTC, ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5)))
    assert len({ids_of([{"body": b"", "scheduled_enqueue_time": noon.astimezone(zone)}])[0] for zone in zones}) == 1


def test_ids_stay_the_same_from_version_to_version() -> None:
    """A query that is started again with another Python or another Oncebus repeats its batch with the same ids."""
    row: Row = {
        "body": "a\U0001fae9",  # since Unicode 16, so Python 3.13 does not print it
        "subject": "b",
        "application_properties": {"n": 1, "f": 0.5, "t": True, "b": b"\xff"},
        "scheduled_enqueue_time": datetime(2030, 1, 1, 1, 2, 3, 4, UTC),
        "time_to_live": timedelta(hours=1),
    }
    same = "28f0cff009acff77b085ec039b2afcee"
    assert ids_of([row, row]) == [f"query-7-{same}", f"query-7-{same}-2"]


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
    assert len({Ids((), "").next_for(row) for row in alike}) == len(alike)


def test_an_id_is_readable_and_never_too_long() -> None:
    (found,) = ids_of([{"body": b"a"}])
    assert found.startswith("query-7-")
    longest = Ids((), f"{'x' * 64}-{2**63 - 1}").next_for({"body": b""})
    assert len(f"{longest}-{10**9}") <= LONGEST_ID


def test_a_new_column_without_values_changes_no_id() -> None:
    assert ids_of([{"body": b"a"}]) == ids_of([{"body": b"a", "reply_to": None}])
