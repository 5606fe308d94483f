"""The source without Spark: what it plans, and what a task reads."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from oncebus.entities import Catalogue, CatalogueFiles, Rule
from oncebus.inbox import InboxWriter, Row
from oncebus.messages import NOBODY, key_of
from oncebus.outbox import OutboxPart
from oncebus.pipeline import source
from oncebus.pipeline.source import InboxSource, InboxStream, Share
from pipeline.judged_rows import QUEUE, TOPIC, catalogue

EMPTY = Catalogue(version=1)


def rows(count: int, first: int = 1, entity: int = QUEUE, body: bytes = b"") -> list[Row]:
    return [
        Row(
            entity=entity,
            sequence=number,
            time=number,
            key=key_of(1, f"m{number}", None),
            window=1,
            message_id=f"m{number}",
            hops=0,
            size=1,
            head=b"",
            body=body,
        )
        for number in range(first, first + count)
    ]


def stream(folder: Path, catalogue: Catalogue = EMPTY, **options: int) -> InboxStream:
    files = CatalogueFiles(folder / "catalogue")
    if catalogue.version not in files.versions():
        files.publish(catalogue)
    return InboxStream(str(folder), str(folder / "catalogue"), **{"after": 0, "shards": 4, "tasks": 2, **options})


def shares(reader: InboxStream, start: int, end: int) -> list[Share]:
    found = reader.partitions({"commit": start}, {"commit": end})
    assert all(isinstance(each, Share) for each in found)
    return list(found)  # type: ignore[arg-type]


def read(reader: InboxStream, share: Share) -> pa.Table:
    return pa.Table.from_batches(list(pickle.loads(pickle.dumps(reader)).read(share)))


def test_offsets_are_commits(tmp_path: Path) -> None:
    reader = stream(tmp_path, after=7)
    assert reader.initialOffset() == {"commit": 7}
    reader = stream(tmp_path)
    with InboxWriter.open(tmp_path, 4) as writer:
        assert reader.latestOffset({"commit": 0}, None) == {"commit": 0}  # type: ignore[arg-type]
        for number in (1, 2):
            writer.append(rows(1, number), 1)
        assert reader.latestOffset({"commit": 0}, None) == {"commit": 2}  # type: ignore[arg-type]
        assert reader.latestOffset({"commit": 2}, None) == {"commit": 2}  # type: ignore[arg-type]
        assert shares(reader, 2, 2) == []


def test_few_rows_are_one_task_and_many_are_split_by_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ROWS_FOR_A_TASK", 10)
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1, 100), 1)
        writer.append(rows(9), 1)
        writer.append(rows(30, 10), 1)
        reader = stream(tmp_path)
        reader.latestOffset({"commit": 1}, None)  # type: ignore[arg-type]
        [alone] = shares(reader, 1, 2)
        assert (alone.of, alone.shards) == (OutboxPart(2, 2, 0, 1), (0, 1, 2, 3))
        parts = shares(reader, 1, 3)
        assert [(each.of, each.shards) for each in parts] == [
            (OutboxPart(2, 3, 0, 2), (0, 2)),
            (OutboxPart(2, 3, 1, 2), (1, 3)),
        ]
        assert len(shares(stream(tmp_path, tasks=9), 1, 3)) == 4
        tables = [read(reader, share) for share in parts]
        assert sorted(number for table in tables for number in table["position"].to_pylist()) == list(range(2, 41))
        for share, table in zip(parts, tables, strict=True):
            assert {*table["part"].to_pylist()} == {share.of.part}
            assert table.schema.names == source.SCHEMA.names


def test_the_first_batch_of_a_query_has_all_tasks_so_that_their_workers_are_started(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in range(1, 4):
            writer.append(rows(1, number), 1)
    for after in (0, 1):
        reader = stream(tmp_path, after=after)
        reader.latestOffset({"commit": after}, None)  # type: ignore[arg-type]
        # Asked again, as Spark may, it is cut in the same way.
        assert [len(shares(reader, after, after + 1)) for _ in range(2)] == [2, 2]
        assert len(shares(reader, after + 1, after + 2)) == 1


@pytest.mark.parametrize(
    ("entity", "subscriptions", "commits"), [(QUEUE, 80, 20), (TOPIC, 8, 20), (TOPIC, 80, 2)], ids=str
)
def test_what_a_topic_copies_often_makes_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entity: int, subscriptions: int, commits: int
) -> None:
    made = catalogue(*[[Rule()]] * subscriptions)
    with InboxWriter.open(tmp_path, 4) as writer:
        for number in range(1, 31):
            writer.append(rows(10, number, entity, bytes(1000)), made.version)
        monkeypatch.setattr(source, "MOST_BYTES", 20 * writer.size // 30)
        reader = stream(tmp_path, made)
        planned = reader.latestOffset({"commit": 0}, None)["commit"]  # type: ignore[arg-type]
        assert commits - 1 <= planned <= commits
        assert reader.latestOffset({"commit": planned}, None)["commit"] in (  # type: ignore[arg-type]
            planned + commits - 1,
            planned + commits,
            30,
        )


def test_a_share_without_rows_still_says_which_it_is(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 4) as writer:
        writer.append(rows(1), 1)
        reader = stream(tmp_path)
        share = shares(reader, 0, 1)[0]
        tables = [read(reader, Share(OutboxPart(1, 1, at, 4), (at,), share.place)) for at in range(4)]
    assert sorted(table["entity"].to_pylist() for table in tables) == [[NOBODY]] * 3 + [[1]]
    assert [table["part"].to_pylist() for table in tables] == [[0], [1], [2], [3]]


def test_the_source_reads_its_options() -> None:
    made = InboxSource({"folder": "/nowhere", "catalogue": "/nowhere", "after": "3", "shards": "4", "tasks": "2"})
    assert made.name() == "oncebus-inbox"
    assert made.streamReader(made.schema()).initialOffset() == {"commit": 3}
