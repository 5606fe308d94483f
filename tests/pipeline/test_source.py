"""The source without Spark: its offsets, its partitions, and the objects that Spark pickles for the tasks."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from oncebus.engine.inbox import InboxWriter
from oncebus.engine.outbox import Batch, OutboxPart, write_part
from oncebus.ledger import Owner
from oncebus.model.entities import Catalogue, CatalogueFiles
from oncebus.pipeline.batch import TaskFolders
from oncebus.pipeline.following import Reached, turn
from oncebus.pipeline.planning import Part
from oncebus.pipeline.query import is_tried_once
from oncebus.pipeline.source import OBJECTS_BEFORE_COLLECTING, FollowingStream, PipelineSource, PipelineStream
from oncebus.spark.task import LedgerPlace, NotInAQuery
from tests.pipeline.inbox_rows import rows

LEDGER = LedgerPlace("/nowhere", "0" * 32, "1" * 32, Owner("here", 1, "2"), 0, has_ended=True)


def stream(folder: Path, after: int = 0) -> PipelineStream:
    files = CatalogueFiles(folder / "catalogue")
    if not files.versions():
        files.publish(Catalogue(version=1))
    folders = TaskFolders(str(folder), str(folder / "catalogue"), str(folder / "drafts"))
    return PipelineStream(folders, LEDGER, after=after, shards=4, tasks=2)


def following(folder: Path) -> FollowingStream:
    CatalogueFiles(folder / "catalogue").publish(Catalogue(version=1))
    (folder / "drafts").mkdir()
    folders = TaskFolders(str(folder), str(folder / "catalogue"), str(folder / "drafts"))
    return FollowingStream(folders, LEDGER, after=0, shards=4, tasks=2)


def parts(reader: PipelineStream, start: int, end: int) -> list[Part]:
    found = [each.value for each in reader.partitions({"commit": start}, {"commit": end})]
    assert all(isinstance(each, Part) for each in found)
    return found


def test_offsets_are_commits(tmp_path: Path) -> None:
    assert stream(tmp_path, after=7).initialOffset() == {"commit": 7}
    reader = stream(tmp_path)
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in (1, 2):
            writer.append(rows(1, number), 1)
        assert reader.latestOffset({"commit": 0}, None) == {"commit": 2}  # type: ignore[arg-type]
        assert parts(reader, 2, 2) == []


@pytest.mark.parametrize("after", [0, 1])
def test_the_first_batch_uses_all_tasks_so_that_all_workers_start(tmp_path: Path, after: int) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in range(1, 4):
            writer.append(rows(1, number), 1)
    reader = stream(tmp_path, after)
    reader.latestOffset({"commit": after}, None)  # type: ignore[arg-type]
    assert [len(parts(reader, after, after + 1)) for _ in range(2)] == [2, 2]
    assert len(parts(reader, after + 1, after + 2)) == 1


def test_the_reader_can_be_pickled_and_refuses_to_read_outside_a_query(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1), 1)
    reader = stream(tmp_path)
    reader.latestOffset({"commit": 0}, None)  # type: ignore[arg-type]
    [partition, _] = pickle.loads(pickle.dumps(reader.partitions({"commit": 0}, {"commit": 1})))
    with pytest.raises(NotInAQuery):
        next(pickle.loads(pickle.dumps(reader)).read(partition))


def test_a_task_looks_for_garbage_rarely(tmp_path: Path) -> None:
    before = gc.get_threshold()
    try:
        for reader in (stream(tmp_path / "1"), following(tmp_path / "2")):
            gc.set_threshold(700)
            with pytest.raises(NotInAQuery):
                next(reader.read(InputPartition(None)))
            assert gc.get_threshold()[0] == OBJECTS_BEFORE_COLLECTING
    finally:
        gc.set_threshold(*before)


def test_a_stream_that_follows_begins_each_batch_at_once_but_the_first(tmp_path: Path) -> None:
    reader = following(tmp_path)
    assert reader.initialOffset() == {"batch": 0}
    assert reader.latestOffset({"batch": 0}, None) == {"batch": 0}  # type: ignore[arg-type]
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1), 1)
        assert reader.latestOffset({"batch": 0}, None) == {"batch": 1}  # type: ignore[arg-type]
        first = [each.value for each in reader.partitions({"batch": 0}, {"batch": 1})]
        assert [(part.of, batch) for part, batch in first] == [
            (OutboxPart(1, 1, 0, 2), 0),
            (OutboxPart(1, 1, 1, 2), 0),
        ]
        for part, batch in first:
            write_part(tmp_path / "drafts", part.of, [], Batch("q", batch))
        assert reader.latestOffset({"batch": 1}, None) == {"batch": 2}  # type: ignore[arg-type]
        [second] = reader.partitions({"batch": 1}, {"batch": 2})
        assert second.value == turn(Reached(1, 1), 2)
        # More than one task takes.
        writer.append(rows(5_000, 2), 1)
        third = [each.value for each in reader.partitions({"batch": 2}, {"batch": 3})]
        assert [(part.of, batch) for part, batch in third] == [
            (OutboxPart(2, 2, 0, 2), 1),
            (OutboxPart(2, 2, 1, 2), 1),
        ]
    with pytest.raises(NotInAQuery):
        next(pickle.loads(pickle.dumps(reader)).read(second))


@pytest.mark.parametrize(
    ("master", "follows"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", False),
        ("local-cluster[1,1,1024]", False),
        ("spark://head:7077", False),
    ],
)
def test_a_task_follows_only_where_spark_runs_it_once(master: str, follows: bool) -> None:
    assert is_tried_once(master) is follows


def test_the_source_reads_its_options() -> None:
    folders = dict.fromkeys(("inbox", "catalogue", "drafts"), "/nowhere")
    made = PipelineSource(
        {**folders, "ledger": LEDGER.to_json(), "after": "3", "shards": "4", "tasks": "2", "follows": "false"}
    )
    assert made.name() == "oncebus-pipeline"
    reader = made.streamReader(made.schema())
    assert isinstance(reader, PipelineStream)
    assert reader.initialOffset() == {"commit": 3}
    assert reader._ledger == LEDGER
