from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oncebus.engine.inbox import InboxDamaged, InboxReader, InboxWriter
from oncebus.engine.inbox.rewriting import rewrite_rows
from tests.engine.inbox.inboxes import row

SHARDS = 3


def filled(folder: Path) -> None:
    """Write ten commits of five rows, several in a segment. The time of a row is its number."""
    with InboxWriter.open(folder, SHARDS, segment_bytes=6000) as writer:
        for commit in range(10):
            rows = [row(5 * commit + at, time=5 * commit + at, keyed=at % 2 == 0) for at in range(5)]
            writer.append(rows, catalogue=commit + 1)
    assert 3 < len([*folder.glob("*.segment")]) < 10


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [each for batch in InboxReader(folder).read(1, 10) for each in batch.to_pylist()]


def at_most(batch: pa.RecordBatch, latest: int) -> pa.RecordBatch:
    time = batch.column("time")
    if pc.max(time).as_py() <= latest:
        return batch
    at = batch.schema.get_field_index("time")
    return batch.set_column(at, batch.schema.field(at), pc.min_element_wise(time, pa.scalar(latest, pa.int64())))


def test_rows_are_changed_in_all_segments_after_a_commit_and_nowhere_else(tmp_path: Path) -> None:
    filled(tmp_path)
    before = rows_of(tmp_path)
    files = {path: path.stat().st_ino for path in tmp_path.glob("*.segment")}
    with InboxWriter.open(tmp_path, SHARDS) as writer:
        # The seventh commit has the rows 30 to 34.
        assert rewrite_rows(tmp_path, 6, writer.last_commit, lambda batch: at_most(batch, 33)) == 20
        assert rewrite_rows(tmp_path, 6, writer.last_commit, lambda batch: at_most(batch, 33)) == 0
    expected = [each | ({"time": min(33, each["time"])} if each["commit"] > 6 else {}) for each in before]
    assert rows_of(tmp_path) == expected
    untouched = [path for path, number in files.items() if path.stat().st_ino == number]
    assert 0 < len(untouched) < len(files)
    # The writer continues where it was.
    with InboxWriter.open(tmp_path, SHARDS) as writer:
        assert writer.append([row(50)], catalogue=11) == 11
        assert (writer.next_position, InboxReader(tmp_path).catalogues(7, 11)) == (52, {7, 8, 9, 10, 11})


def test_an_inbox_without_rows_stays_as_it_is(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, SHARDS) as writer:
        assert rewrite_rows(tmp_path, 0, writer.last_commit, lambda batch: at_most(batch, 0)) == 0


def test_a_damaged_commit_is_not_rewritten(tmp_path: Path) -> None:
    filled(tmp_path)
    oldest = min(tmp_path.glob("*.segment"))
    data = bytearray(oldest.read_bytes())
    data[-1] ^= 1
    oldest.write_bytes(data)
    with pytest.raises(InboxDamaged, match=r"commit [12] cannot be read"):
        rewrite_rows(tmp_path, 0, 10, lambda batch: at_most(batch, 0))
    assert oldest.read_bytes() == data
