"""The source without Spark: its offsets, its partitions, and what Spark has to carry to the tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from oncebus.entities import Catalogue, CatalogueFiles
from oncebus.inbox import InboxWriter
from oncebus.ledger import Owner
from oncebus.pipeline.batch import Places
from oncebus.pipeline.planning import Part
from oncebus.pipeline.source import PipelineSource, PipelineStream
from oncebus.spark.task import NotInAQuery, Place
from pipeline.inbox_rows import rows

LEDGER = Place("/nowhere", "0" * 32, "1" * 32, Owner("here", 1, "2"), None)


def stream(folder: Path, after: int = 0) -> PipelineStream:
    files = CatalogueFiles(folder / "catalogue")
    if not files.versions():
        files.publish(Catalogue(version=1))
    places = Places(str(folder), str(folder / "catalogue"), str(folder / "drafts"))
    return PipelineStream(places, LEDGER, after=after, shards=4, tasks=2)


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
def test_the_first_batch_of_a_query_has_all_tasks_so_that_their_workers_are_started(tmp_path: Path, after: int) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in range(1, 4):
            writer.append(rows(1, number), 1)
    reader = stream(tmp_path, after)
    reader.latestOffset({"commit": after}, None)  # type: ignore[arg-type]
    assert [len(parts(reader, after, after + 1)) for _ in range(2)] == [2, 2]
    assert len(parts(reader, after + 1, after + 2)) == 1


def test_the_reader_is_pickled_for_tasks_which_refuse_to_work_outside_a_query(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1), 1)
    reader = stream(tmp_path)
    reader.latestOffset({"commit": 0}, None)  # type: ignore[arg-type]
    [partition, _] = pickle.loads(pickle.dumps(reader.partitions({"commit": 0}, {"commit": 1})))
    with pytest.raises(NotInAQuery):
        next(pickle.loads(pickle.dumps(reader)).read(partition))


def test_the_source_reads_its_options() -> None:
    folders = dict.fromkeys(("inbox", "catalogue", "drafts"), "/nowhere")
    made = PipelineSource({**folders, "ledger": LEDGER.to_json(), "after": "3", "shards": "4", "tasks": "2"})
    assert made.name() == "oncebus-pipeline"
    reader = made.streamReader(made.schema())
    assert isinstance(reader, PipelineStream)
    assert reader.initialOffset() == {"commit": 3}
    assert reader._ledger == LEDGER
