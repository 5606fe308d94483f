"""A task follows the inbox, without Spark: one entry after another, with the numbers that the ledger needs."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncebus.engine.outbox import Batch, OutboxPart
from oncebus.model.messages import Fate
from oncebus.pipeline import following
from oncebus.pipeline.following import TURN_SECONDS, WARM_UP_TURNS, Reached, Turn, follow, reached, turn
from tests.pipeline.inbox_rows import rows
from tests.pipeline.scene import Pipeline

LONG = 600.0


def follower(
    pipeline: Pipeline, begin: Reached, seconds: float = LONG, patience: float = LONG
) -> Iterator[tuple[OutboxPart, int]]:
    return follow(Turn(begin, seconds, patience), pipeline.planner, pipeline.folders, pipeline.ledger, pipeline.writer)


def test_each_time_that_there_are_commits_they_become_an_entry_with_the_next_number(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    assert reached(pipeline.folders.drafts, 0) == Reached(0, 0)
    entries = follower(pipeline, Reached(0, 0))
    pipeline.append(rows(2))
    assert next(entries)[1] == 2
    pipeline.append(rows(1, 2))
    pipeline.append(rows(1, 3))
    of, count = next(entries)
    assert (of.first, of.last, of.parts, count) == (2, 3, 1, 2)
    # The second message came in both.
    assert [fate for _, fate, _ in pipeline.fates(1)] == [Fate.DUPLICATE, Fate.DELIVERED]
    assert [pipeline.entry(after).batch() for after in (0, 1)] == [Batch("query", 0), Batch("query", 1)]
    assert reached(pipeline.folders.drafts, 0) == Reached(3, 2)


def test_the_next_task_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    for number in range(1, 4):
        pipeline.append(rows(1, number))
        begin = reached(pipeline.folders.drafts, 0)
        assert begin == Reached(number - 1, number - 1)
        of, _ = next(follower(pipeline, begin))
        assert (of.first, of.last) == (number, number)


def test_entries_of_an_earlier_query_do_not_count(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.append(rows(1))
    next(follower(pipeline, Reached(0, 7)))
    assert reached(pipeline.folders.drafts, 0) == Reached(1, 8)
    assert reached(pipeline.folders.drafts, 1) == Reached(1, 0)


def test_it_waits_for_a_commit(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    timer = threading.Timer(0.05, lambda: pipeline.append(rows(1)))
    timer.start()
    assert next(follower(pipeline, Reached(0, 0)))[1] == 1
    timer.join()


def test_it_ends_when_there_is_work_for_several_tasks(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.append(rows(1))
    pipeline.append(rows(5_000))
    assert list(follower(pipeline, Reached(0, 0))) == []
    assert pipeline.outbox.next_entry(0) is None


def test_it_ends_when_its_time_is_over_or_nothing_comes_or_another_query_has_begun(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    assert list(follower(pipeline, Reached(0, 0), seconds=0.05)) == []
    assert list(follower(pipeline, Reached(0, 0), patience=0.05)) == []
    shutil.rmtree(pipeline.folders.drafts)
    pipeline.append(rows(1))
    assert list(follower(pipeline, Reached(0, 0))) == []


def test_entries_have_a_least_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(following, "PACE_SECONDS", LONG)
    pipeline = Pipeline(tmp_path)
    entries = follower(pipeline, Reached(0, 0))
    for number in (1, 2):
        pipeline.append(rows(1, number))
        next(entries)
    assert slept[0] == 0
    assert 0 < slept[1] <= LONG


def test_only_the_first_turns_end_when_nothing_comes() -> None:
    begin = Reached(3, 4)
    assert turn(begin, WARM_UP_TURNS).patience < 1
    assert turn(begin, WARM_UP_TURNS + 1) == Turn(begin, TURN_SECONDS, TURN_SECONDS)
