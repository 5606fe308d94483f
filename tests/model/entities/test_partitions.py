from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.entities import effective_partition_key, partition_of

TEXTS = st.text(min_size=1)


@pytest.mark.parametrize(
    ("decisive", "partition"), [("a", 0), ("ödeme", 0), ("invoice-7", 9), ("12345.2017/Payment", 5)]
)
def test_the_function_never_changes(decisive: str, partition: int) -> None:
    assert partition_of(None, decisive, None, detects=False, turn=0) == partition
    assert partition_of(decisive.upper(), None, None, detects=False, turn=0) == partition_of(
        None, decisive.upper(), None, detects=False, turn=0
    )


@given(TEXTS, TEXTS, TEXTS, st.booleans(), st.integers(0))
def test_a_session_decides_before_all_else(session: str, key: str, identity: str, detects: bool, turn: int) -> None:
    decided = partition_of(session, None, None, detects=False, turn=0)
    assert 0 <= decided < 16
    assert partition_of(session, key, identity, detects=detects, turn=turn) == decided


@given(TEXTS, TEXTS, st.booleans(), st.integers(0))
def test_without_a_session_the_partition_key_decides(key: str, identity: str, detects: bool, turn: int) -> None:
    decided = partition_of(None, key, None, detects=False, turn=0)
    assert partition_of(None, key, identity, detects=detects, turn=turn) == decided


@given(TEXTS, st.integers(0))
def test_an_empty_session_decides_too(identity: str, turn: int) -> None:
    decided = partition_of("", None, None, detects=False, turn=0)
    assert partition_of("", None, identity, detects=True, turn=turn) == decided


@given(st.one_of(TEXTS, st.binary(min_size=1)), st.integers(0))
def test_without_both_the_id_decides_if_duplicates_are_detected_else_the_turn(identity: str | bytes, turn: int) -> None:
    decided = partition_of(None, None, identity, detects=True, turn=0)
    assert partition_of(None, None, identity, detects=True, turn=turn) == decided
    assert partition_of(None, None, identity, detects=False, turn=turn) == turn % 16
    assert partition_of(None, None, None, detects=True, turn=turn) == turn % 16


def test_many_sessions_fill_all_partitions_about_evenly() -> None:
    counts = [0] * 16
    for number in range(16_000):
        counts[partition_of(f"session-{number}", None, None, detects=False, turn=0)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150


@pytest.mark.parametrize(
    ("is_partitioned", "session", "partition_key", "effective"),
    [
        (False, "s", "p", None),
        (False, None, "p", None),
        (True, "s", "s", "S"),
        (True, "Order-ö7", None, "ORDER-Ö7"),
        (True, None, "p", "p"),
        (True, "", None, ""),
        (True, None, "", None),
        (True, None, None, None),
    ],
)
def test_the_partition_key_that_is_part_of_the_detection_key(
    is_partitioned: bool, session: str | None, partition_key: str | None, effective: str | None
) -> None:
    assert effective_partition_key(is_partitioned, session, partition_key) == effective
