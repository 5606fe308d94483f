from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from oncebus.detection.keys import part_of
from oncebus.engine.inbox import (
    InboxDamaged,
    InboxError,
    InboxFull,
    InboxInUse,
    InboxReader,
    InboxWriter,
    Marks,
    Row,
    RowsRefused,
)
from oncebus.engine.inbox.rows import SPREAD, pack, shard_of
from oncebus.model.messages import LogRow
from oncebus.model.packed import unpack_rows
from tests.engine.inbox.inboxes import contents, disk_that_fails_to_sync, row, unsynced


@pytest.mark.parametrize("shards", [1, 3, 8, 200])
def test_a_key_is_in_the_shard_that_detection_expects(shards: int) -> None:
    keys = [hashlib.blake2b(str(at).encode(), digest_size=16).digest() for at in range(300)]
    halves = np.frombuffer(b"".join(keys), ">u8").astype(np.uint64).reshape(-1, 2)
    expected = part_of(halves[:, 0], halves[:, 1], shards).tolist()
    assert [shard_of(key, shards) for key in keys] == expected
    rows = [row(at) for at in range(300)]
    for given in (rows, rows[:20]):
        for shard, piece in pack(given, 1, shards):
            for found in unpack_rows(piece, 1, 1, 1):
                assert found.key == rows[found.position - 1]["key"]
                assert shard == expected[found.position - 1]


def test_rows_without_a_key_are_spread_but_a_small_commit_is_not_split() -> None:
    def sizes(count: int) -> list[int]:
        rows = [row(at, keyed=False) for at in range(count)]
        return [len(list(unpack_rows(piece, 1, 1, 1))) for _, piece in pack(rows, SPREAD, 4)]

    assert sizes(20) == [20]
    assert sizes(8 * SPREAD) == [2 * SPREAD] * 4


def files_open_in(folder: Path) -> list[str]:
    """List the open files of this folder only: files that other tests left open may be closed at any time."""
    found = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return sorted(path for path in found if path.startswith(str(folder)))


def test_reading_returns_what_was_appended_and_holds_no_file_open(tmp_path: Path) -> None:
    rows: list[Row] = [
        {**row(1), "scheduled": 5, "expires": 6, "partition_key": "p", "origin_entity": 7, "origin_sequence": 8},
        {**row(2, keyed=False), "head": b"\0h", "body": None, "body_file": "name"},
    ]
    with InboxWriter.open(tmp_path, 1) as writer:
        assert writer.append(rows, 12) == 1
        before = files_open_in(tmp_path)
        reader = InboxReader(tmp_path)
        for _ in range(20):
            kept = list(reader.read(1, 1))
        assert files_open_in(tmp_path) == before
    assert reader.shards() == 1
    for found, given, position in zip(kept, rows, (1, 2), strict=True):
        missing = dict.fromkeys(LogRow._fields)
        assert found._asdict() == {**missing, **given, "position": position, "commit": 1, "catalogue": 12}


def test_a_commit_is_announced_only_after_its_fsync(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 1) as writer:
        told: list[int] = []
        sizes: list[int] = []

        def sync(descriptor: int) -> None:
            told.append(InboxReader(tmp_path).durable())
            sizes.append(os.fstat(descriptor).st_size)

        with mock.patch("os.fdatasync", sync):
            writer.append([row(1)], 1)
            assert sizes == [writer.size]
            writer.append([row(2)], 1)
        assert told == [0, 1]
        assert InboxReader(tmp_path).durable() == 2


def test_the_size_can_be_read_while_segments_come_and_go(tmp_path: Path) -> None:
    class Changing(dict[int, int]):
        """A mapping from which another thread seems to delete a segment at each step of an iteration."""

        def items(self) -> Any:
            for pair in super().items():
                yield pair
                self.pop(pair[0])

    with InboxWriter.open(tmp_path, 1, segment_bytes=1) as writer:
        for number in range(5):
            writer.append([row(number)], 1)
        files = sum(path.stat().st_size for path in tmp_path.glob("*.segment"))
        writer._sizes = Changing(writer._sizes)
        assert writer.size == files


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 1):
        script = f"from oncebus.engine.inbox import InboxWriter; InboxWriter.open({str(tmp_path)!r}, 1)"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "InboxInUse" in other.stderr
        with pytest.raises(InboxInUse, match="is being written by another process"):
            InboxWriter.open(tmp_path, 1)
    InboxWriter.open(tmp_path, 1).close()


def test_a_full_disk_refuses_rows_and_the_log_continues_by_itself(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 2) as writer:
        writer.append([row(1)], 1)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size + 1000, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(InboxFull, match="cannot be written: File too large"):
                    writer.append([row(2, body=b"x" * 5000)], 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert InboxReader(tmp_path).durable() == 1
        assert writer.append([row(3)], 1) == 2
    assert [values[3] for values in contents(InboxReader(tmp_path), 1, 2)] == [1, 3]


def test_after_a_failed_fsync_the_log_continues_in_another_file_while_a_reader_reads(tmp_path: Path) -> None:
    """The reader has mapped bytes that are truncated later: touching them would kill the process."""
    reader = InboxReader(tmp_path)
    with InboxWriter.open(tmp_path, 1) as writer:
        writer.append([row(1)], 1)

        def fail(*_: int) -> None:
            reader.plan(0, 100, 10**9)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with mock.patch("os.fdatasync", fail), pytest.raises(InboxError, match="Input/output error"):
            writer.append([row(2, body=b"x" * 100_000)], 1)
        assert writer.append([row(3)], 1) == 2
        assert len(list(tmp_path.glob("*.segment"))) == 2
        assert reader.plan(0, 100, 10**9) == 2
        assert [values[3] for values in contents(reader, 1, 2)] == [1, 3]
        with disk_that_fails_to_sync(), pytest.raises(InboxError):
            writer.append([row(4)], 1)
        torn = [writer.is_torn]
        with disk_that_fails_to_sync(), mock.patch("os.ftruncate", fail), pytest.raises(InboxError):
            writer.append([row(5)], 1)
        assert [*torn, writer.is_torn] == [False, True]
    with InboxWriter.open(tmp_path, 1) as writer:
        assert writer.last_commit == 3, "what nobody was told of, but is whole, may stay"
    assert [values[3] for values in contents(InboxReader(tmp_path), 1, 3)] == [1, 3, 5]


def test_a_commit_that_could_not_be_announced_is_announced_with_the_next(tmp_path: Path) -> None:
    write = os.pwrite

    def fail(descriptor: int, data: Any, offset: int) -> int:
        if len(data) == 16:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(descriptor, data, offset)

    with InboxWriter.open(tmp_path, 1) as writer:
        with mock.patch("os.pwrite", fail), pytest.raises(InboxError, match="durable' cannot be written"):
            writer.append([row(1)], 1)
        assert InboxReader(tmp_path).durable() == 0
        assert writer.append([row(2)], 1) == 2
    assert [values[3] for values in contents(InboxReader(tmp_path), 1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "without rows"),
        ([{**row(1), "entity": None}], "Column 'entity' of a row is null"),
        ([{name: value for name, value in row(1).items() if name != "head"}], "Column 'head' of a row is missing"),
        ([{**row(1), "key": b"short"}], "has 5 bytes instead of 16"),
        ([{**row(1), "sequence": 2**63}], "cannot be encoded"),
        ([{**row(1), "message_id": "\ud800"}], "cannot be encoded"),
        ([{**row(1), "hops": 1 << 16}], "cannot be encoded"),
        ([{**row(1), "message_id": "x" * (1 << 16)}], "cannot be encoded"),
    ],
)
def test_rows_that_do_not_fit_leave_no_trace(tmp_path: Path, rows: Any, reason: str) -> None:
    with unsynced(), InboxWriter.open(tmp_path, 2) as writer:
        size = writer.size
        with pytest.raises(RowsRefused, match=reason):
            writer.append(rows, 1)
        assert (writer.size, writer.last_commit) == (size, 0)


def test_a_plan_is_bounded_by_bytes_and_each_header_is_read_once(tmp_path: Path) -> None:
    with unsynced(), InboxWriter.open(tmp_path, 2, segment_bytes=10_000) as writer:
        for number in range(40):
            writer.append([row(number, body=b"x" * 1000)], 1)
        size = (writer.size - 32 * len(list(tmp_path.glob("*.segment")))) // 40
        reader = InboxReader(tmp_path)
        assert reader.plan(0, 100, 5 * size + size // 2) == 5
        assert reader.plan(5, 100, 1) == 6
        assert reader.plan(6, 100, 10**9) == 40
        assert reader.plan(40, 100, 10**9) == 40
        with mock.patch("oncebus.engine.inbox.segment.decode_frame", side_effect=AssertionError):
            assert reader.plan(6, 20, 10**9) == 26
        place = reader.locate(30)
        found = list(InboxReader(tmp_path).read(30, 40, place=place))
        assert [each.commit for each in found] == list(range(30, 41))
        with pytest.raises(InboxDamaged, match=r"has commit 30, at offset .*: commit 31 cannot be read"):
            list(InboxReader(tmp_path).read(31, 40, place=place))


def test_the_error_names_what_is_missing(tmp_path: Path) -> None:
    assert InboxReader(tmp_path / "none").durable() == 0
    assert InboxReader(tmp_path / "none").plan(0, 1, 1) == 0
    assert InboxReader(tmp_path / "none").shards() is None
    with InboxWriter.open(tmp_path, 2, segment_bytes=1) as writer:
        for number in range(4):
            writer.append([row(number)], 1)
        writer.delete_below(1)
        reader = InboxReader(tmp_path)
        with pytest.raises(InboxDamaged, match=r"Commit 1 of inbox '.*' is missing: .* begins with commit 2"):
            list(reader.read(1, 4))
        third = tmp_path / f"{3:020d}.segment"
        third.unlink()
        with pytest.raises(InboxDamaged, match=rf"{2:020d}.segment' ends after 0 bytes .*: commit 3 cannot be read"):
            list(reader.read(2, 4))
    with pytest.raises(InboxError, match="has 2 shards, not 3"):
        InboxWriter.open(tmp_path, 3)
    for path in tmp_path.glob("*.segment"):
        path.unlink()
    with pytest.raises(InboxDamaged, match="has lost its segments: commit 4 was durable"):
        InboxWriter.open(tmp_path, 2)


def test_marks_are_kept_for_each_partition_of_an_entity(tmp_path: Path) -> None:
    with InboxWriter.open(tmp_path, 3) as writer:
        assert writer.unread_marks(0) == Marks()
        writer.append([row(5, entity=1), row((3 << 48) + 2, entity=1, time=9_000_000), row(4, entity=2)], 1)
        writer.append([row(4, entity=1), row((3 << 48) + 1, entity=1)], 1)
        assert writer.unread_marks(0) == Marks(
            row((3 << 48) + 1)["time"], {(1, 0): 5, (1, 3): (3 << 48) + 2, (2, 0): 4}
        )
        assert writer.unread_marks(1).sequences == {(1, 0): 4, (1, 3): (3 << 48) + 1}
        assert writer.unread_marks(2) == Marks()


def test_a_reader_that_waits_for_a_commit_is_woken_even_by_a_writer_that_restarts(tmp_path: Path) -> None:
    def append() -> None:
        with InboxWriter.open(tmp_path, 2) as writer:
            writer.append([row(1)], 1)

    reader = InboxReader(tmp_path)
    reader.wait(0, 0.01)
    for commit in range(1, 4):
        thread = threading.Thread(target=append)
        thread.start()
        reader.wait(commit - 1, 60)
        assert reader.durable() == commit
        # There is no wait for a commit that is already there.
        reader.wait(commit - 1, 60)
        thread.join()
