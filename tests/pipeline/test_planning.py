"""The inbox is cut into micro-batches, and these into parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.engine.inbox import InboxWriter
from oncebus.engine.outbox import OutboxPart
from oncebus.model.entities import Catalogue, CatalogueFiles, Rule
from oncebus.pipeline import planning
from oncebus.pipeline.planning import Planner
from tests.pipeline.inbox_rows import rows
from tests.pipeline.judged_rows import QUEUE, TOPIC, catalogue

EMPTY = Catalogue(version=1)


def planner(folder: Path, catalogue: Catalogue = EMPTY, *, tasks: int = 2) -> Planner:
    files = CatalogueFiles(folder / "catalogue")
    if catalogue.version not in files.versions():
        files.publish(catalogue)
    return Planner(folder, folder / "catalogue", shards=4, tasks=tasks)


def test_a_batch_ends_with_the_newest_commit(tmp_path: Path) -> None:
    plan = planner(tmp_path)
    with InboxWriter.open(tmp_path, 4) as writer:
        assert plan.last_commit(0) == 0
        for number in (1, 2):
            writer.append(rows(1, number), 1)
        assert plan.last_commit(0) == 2
        assert plan.last_commit(2) == 2
        assert plan.parts(3, 2) == []


def test_few_rows_are_one_part_and_many_are_split_by_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ROWS_FOR_A_TASK", 10)
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1, 100), 1)
        writer.append(rows(9), 1)
        writer.append(rows(30, 10), 1)
        plan = planner(tmp_path)
        plan.last_commit(1)
        [alone] = plan.parts(2, 2)
        assert (alone.of, alone.shards) == (OutboxPart(2, 2, 0, 1), (0, 1, 2, 3))
        assert [(each.of, each.shards) for each in plan.parts(2, 3)] == [
            (OutboxPart(2, 3, 0, 2), (0, 2)),
            (OutboxPart(2, 3, 1, 2), (1, 3)),
        ]
        assert len(planner(tmp_path, tasks=9).parts(2, 3)) == 4
        # A second call, which Spark may make, cuts in the same way.
        assert plan.parts(2, 2, for_all_tasks=True) == plan.parts(2, 2, for_all_tasks=True)
        assert len(plan.parts(2, 2, for_all_tasks=True)) == 2


@pytest.mark.parametrize(
    ("entity", "subscriptions", "commits"), [(QUEUE, 80, 20), (TOPIC, 8, 20), (TOPIC, 80, 2)], ids=str
)
def test_messages_with_many_copies_make_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entity: int, subscriptions: int, commits: int
) -> None:
    made = catalogue(*[[Rule()]] * subscriptions)
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in range(1, 31):
            writer.append(rows(10, number, entity, bytes(1000)), made.version)
        monkeypatch.setattr(planning, "MOST_BYTES", 20 * writer.size // 30)
        plan = planner(tmp_path, made)
        planned = plan.last_commit(0)
        assert commits - 1 <= planned <= commits
        assert plan.last_commit(planned) in (planned + commits - 1, planned + commits, 30)
