"""The backlog, compared with a list of all commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.broker import backlog as backlog_module
from oncebus.broker.backlog import Backlog

COMMITS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=3), max_size=40)


def filled(commits: list[list[tuple[int, int]]]) -> Backlog:
    """Return a backlog of these commits. Commit n became durable at time 10 n."""
    backlog = Backlog()
    for number, sizes in enumerate(commits, start=1):
        for entity, size in sizes:
            backlog.add(entity, size)
        backlog.commit(number, sizes, 10 * number)
    return backlog


@given(COMMITS, st.data())
def test_bytes_and_age_are_those_of_what_is_left(commits: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    backlog = filled(commits)
    taken = data.draw(st.integers(0, len(commits)))
    backlog.take(taken)
    left = commits[taken:]
    for entity in range(4):
        assert backlog.of(entity) == sum(size for sizes in left for each, size in sizes if each == entity)
    assert backlog.total == sum(size for sizes in left for _, size in sizes)
    assert backlog.oldest == (10 * (taken + 1) if left else None)


def test_refused_bytes_no_longer_count() -> None:
    backlog = Backlog()
    for entity in (1, 1, 2):
        backlog.add(entity, 5)
    backlog.remove({1: 5})
    assert (backlog.of(1), backlog.of(2), backlog.total, backlog.oldest) == (5, 5, 10, None)


def test_a_commit_may_come_in_parts() -> None:
    backlog = Backlog()
    for entity in (1, 2):
        backlog.add(entity, 5)
        backlog.commit(7, [(entity, 5)], 70 + entity)
    assert (backlog.total, backlog.oldest) == (10, 71)
    backlog.take(6)
    assert (backlog.total, backlog.oldest) == (10, 71)
    backlog.take(7)
    assert (backlog.total, backlog.of(1), backlog.of(2)) == (0, 0, 0)


def test_memory_is_bounded_however_long_the_pipeline_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "MOST_GROUPS", 16)
    count = 1000
    backlog = filled([[(number % 3, 1)] for number in range(1, count + 1)])
    assert len(backlog._groups) <= 16
    for taken in range(count + 1):
        backlog.take(taken)
        left = count - taken
        # Never too little, and at most one group too much: an eighth of the total.
        assert left <= backlog.total <= left + count // 8
        if left:
            assert backlog.oldest is not None
            assert 10 * (taken + 1) - 10 * count // 8 <= backlog.oldest <= 10 * (taken + 1)
    assert (backlog.total, backlog.oldest, backlog.of(0), backlog._width) == (0, None, 0, 1)
    backlog.add(1, 1)
    backlog.commit(count + 1, [(1, 1)], 5)
    backlog.add(1, 1)
    backlog.commit(count + 2, [(1, 1)], 6)
    backlog.take(count + 1)
    assert backlog.oldest == 6
