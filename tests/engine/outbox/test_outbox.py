from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.engine.outbox import Batch, Entry, Outbox, OutboxDamaged, OutboxError, OutboxPart, write_part
from oncebus.model.messages import Fate, Result
from tests.pipeline.judged_rows import row
from tests.properties import examples

Place = tuple[int, int, int | None]
BATCH = Batch("query", 7)


def results_at(places: Sequence[Place]) -> list[Result]:
    """Return results for (commit, position, destination)."""
    return [
        Result(
            row(position, commit=commit),
            Fate.DUPLICATE if destination is None else Fate.DELIVERED,
            destination,
        )
        for commit, position, destination in places
    ]


def commits(entry: Entry) -> list[int]:
    return [each.row.commit for each in entry.rows()]


def drafts_in(folder: Path) -> Path:
    """Return the draft folder of a query that runs for the whole test."""
    drafts = folder / "drafts-test"
    drafts.mkdir(parents=True, exist_ok=True)
    return drafts


def parts_in(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != "kernel" and not name.startswith("drafts-"))


def draft_folders_in(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith("drafts-")]


def write(
    folder: Path, first: int, last: int, parts: int, only: Sequence[int] | None = None, batch: Batch = BATCH
) -> None:
    """Write an entry with one row per commit, at ten times its position, in the part commit % parts."""
    for part in range(parts) if only is None else only:
        rows = [(commit, 10 * commit, 1) for commit in range(first, last + 1) if commit % parts == part]
        write_part(drafts_in(folder), OutboxPart(first, last, part, parts), results_at(rows), batch)


def take_all(outbox: Outbox, after: int = 0) -> tuple[int, list[int]]:
    """Return the rows that a gateway would ingest, and the last commit it reaches."""
    taken: list[int] = []
    while (entry := outbox.next_entry(after)) is not None:
        taken += commits(entry)
        after = entry.last
        outbox.delete_up_to(after)
    return after, taken


def test_an_entry_is_ingested_when_it_has_all_its_parts(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    assert outbox.next_entry(0) is None
    for part in (2, 0):
        write(tmp_path / "outbox", 1, 5, 3, [part])
        assert outbox.next_entry(0) is None
    write(tmp_path / "outbox", 1, 5, 3, [1])
    entry = outbox.next_entry(0)
    assert entry is not None
    assert (entry.first, entry.last) == (1, 5)
    assert [each.row.position for each in entry.rows()] == [10, 20, 30, 40, 50]
    assert outbox.next_entry(5) is None


def test_several_entries_can_be_taken_with_one_listing(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    assert outbox.next_entries(0) == []
    write(tmp_path, 1, 2, 2)
    write(tmp_path, 3, 3, 1)
    write(tmp_path, 4, 5, 2, [1])
    write(tmp_path, 6, 6, 1)
    assert [(entry.after, entry.last) for entry in outbox.next_entries(0)] == [(0, 2), (2, 3)]
    assert outbox.next_entries(0)[0] == outbox.next_entry(0)
    write(tmp_path, 4, 5, 2, [0])
    assert [entry.last for entry in outbox.next_entries(2)] == [3, 5, 6]


def test_rows_come_in_the_order_of_position_then_destination(tmp_path: Path) -> None:
    write_part(drafts_in(tmp_path), OutboxPart(1, 2, 0, 2), results_at([(1, 3, 9), (1, 3, 4), (2, 7, None)]), BATCH)
    write_part(drafts_in(tmp_path), OutboxPart(1, 2, 1, 2), results_at([(2, 6, 1), (1, 2, 5)]), BATCH)
    entry = Outbox(tmp_path).next_entry(0)
    assert entry is not None
    rows = entry.rows()
    Outbox(tmp_path).delete_up_to(2)
    assert parts_in(tmp_path) == []
    assert [(each.row.position, each.destination) for each in rows] == [
        (2, 5),
        (3, 4),
        (3, 9),
        (6, 1),
        (7, None),
    ]


def test_a_part_that_is_written_twice_is_the_same(tmp_path: Path) -> None:
    write(tmp_path, 1, 4, 2)
    write(tmp_path, 1, 4, 2)
    outbox = Outbox(tmp_path)
    assert take_all(outbox) == (4, [1, 2, 3, 4])
    write(tmp_path, 1, 4, 2, [0])
    write(tmp_path, 5, 5, 1)
    assert take_all(outbox, 4) == (5, [5])
    assert parts_in(tmp_path) == []


def test_an_incomplete_entry_does_not_block_the_next(tmp_path: Path) -> None:
    write(tmp_path, 5, 9, 2, [1])
    write(tmp_path, 5, 9, 4, [0, 2, 3])
    write(tmp_path, 5, 7, 2)
    write(tmp_path, 8, 12, 2)
    assert take_all(Outbox(tmp_path), 4) == (12, [5, 6, 7, 8, 9, 10, 11, 12])
    assert parts_in(tmp_path) == []


def test_the_shorter_of_two_complete_entries_comes_first(tmp_path: Path) -> None:
    write(tmp_path, 5, 9, 2)
    write(tmp_path, 5, 7, 1)
    outbox = Outbox(tmp_path)
    entry = outbox.next_entry(4)
    assert entry is not None
    assert (entry.first, entry.last) == (5, 7)
    assert take_all(outbox, 4) == (9, [5, 6, 7, 8, 9])


def test_a_query_begins_after_the_newest_complete_entry_and_deletes_incomplete_ones(
    tmp_path: Path,
) -> None:
    outbox = Outbox(tmp_path)
    assert outbox.begin().last is None
    write(tmp_path, 1, 2, 2, [0])
    assert outbox.begin().last is None
    assert parts_in(tmp_path) == []
    write(tmp_path, 1, 2, 2, batch=Batch("first", 0))
    write(tmp_path, 3, 9, 1, batch=Batch("first", 1))
    write(tmp_path, 10, 12, 3, [0, 2], batch=Batch("first", 2))
    last = outbox.begin().last
    assert last is not None
    assert (last.last, last.batch()) == (9, ("first", 1))
    assert take_all(outbox) == (9, list(range(1, 10)))


@examples(40)
@given(
    queries=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=3),
    data=st.data(),
)
def test_each_commit_is_ingested_once_whenever_queries_die(queries: list[list[int]], data: st.DataObject) -> None:
    """Each query writes entries of some lengths, one after the other. All but the last die while writing."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        take_from_queries(Path(folder), queries, data)


def take_from_queries(folder: Path, queries: list[list[int]], data: st.DataObject) -> None:
    outbox = Outbox(folder)
    after = 0
    taken: list[int] = []
    last = 0
    for number, lengths in enumerate(queries):
        begun = outbox.begin().last
        assert (begun.last if begun else 0) == last
        is_last = number == len(queries) - 1
        for length in lengths:
            parts = data.draw(st.integers(1, 3))
            arriving = data.draw(st.permutations(range(parts)))
            dies = not is_last and data.draw(st.booleans())
            for part in arriving[: data.draw(st.integers(0, parts - 1))] if dies else arriving:
                write(folder, last + 1, last + length, parts, [part])
            if not dies:
                last += length
            if data.draw(st.booleans()):
                while (entry := outbox.next_entry(after)) is not None:
                    taken += commits(entry)
                    outbox.delete_up_to(entry.after)
                    after = entry.last
                assert after == last
            if dies:
                break
    _, rows = take_all(outbox, after)
    assert taken + rows == list(range(1, last + 1))


def test_a_changed_byte_is_detected_anywhere(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 1)
    entry = Outbox(tmp_path).next_entry(0)
    assert entry is not None
    path = tmp_path / OutboxPart(1, 2, 0, 1).name
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(OutboxDamaged, match=str(path)):
            entry.rows()
    path.write_bytes(b"")
    with pytest.raises(OutboxDamaged, match=str(path)):
        entry.rows()
    path.write_bytes(whole)
    other = path.rename(tmp_path / OutboxPart(1, 3, 0, 1).name)
    renamed = Outbox(tmp_path).next_entry(0)
    assert renamed is not None
    with pytest.raises(OutboxDamaged, match=f"{other.name}' holds part '{path.name}'"):
        renamed.rows()


def test_a_row_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    for change in ({"sequence": 1 << 63}, {"message_id": "\ud800"}, {"key": b"short"}, {"time": None}):
        result = Result(row(1, **change), Fate.DELIVERED, 1)
        with pytest.raises(OutboxError, match="cannot be encoded: "):
            write_part(drafts_in(tmp_path), OutboxPart(1, 1, 0, 1), [result], BATCH)
    assert parts_in(tmp_path) == []


@pytest.mark.parametrize("part", [(0, 1, 0, 1), (5, 4, 0, 1), (1, 1, 1, 1), (1, 1, -1, 2)])
def test_an_impossible_part_is_refused(tmp_path: Path, part: tuple[int, int, int, int]) -> None:
    with pytest.raises(OutboxError, match="does not name a part of commits"):
        write_part(drafts_in(tmp_path), OutboxPart(*part), results_at([]), BATCH)


def test_a_part_of_an_older_query_never_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears neither beside a part of the next query nor as an entry of its own, wherever the task was stopped."""
    outbox = Outbox(tmp_path)
    old = outbox.begin().drafts
    write_part(old, OutboxPart(1, 5, 0, 2), results_at([(1, 10, 1)]), Batch("old", 3))
    new = outbox.begin().drafts
    write_part(new, OutboxPart(1, 5, 0, 2), results_at([(1, 10, 1)]), Batch("new", 0))
    for part in (OutboxPart(1, 5, 1, 2), OutboxPart(1, 5, 0, 1)):
        with pytest.raises(
            OutboxError, match=rf"'{tmp_path}/{part.name}' comes too late: a newer query has deleted '{old}'"
        ):
            write_part(old, part, results_at([]), Batch("old", 3))
    assert parts_in(tmp_path) == [OutboxPart(1, 5, 0, 2).name]
    write_part(new, OutboxPart(1, 5, 1, 2), results_at([]), Batch("new", 0))

    sync = os.fsync

    def begin_meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        outbox.begin()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", begin_meanwhile)
    with pytest.raises(OutboxError, match="comes too late"):
        write_part(new, OutboxPart(6, 6, 0, 1), results_at([(6, 60, 1)]), Batch("new", 1))
    last = outbox.begin().last
    assert last is not None
    assert (last.last, last.batch()) == (5, ("new", 0))
    assert len(parts_in(tmp_path)) == 2
    assert len(draft_folders_in(tmp_path)) == 1


def test_a_query_begins_although_a_task_of_the_last_one_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(tmp_path)
    old = Path(outbox.begin().drafts)
    (old / ".tmp-half").write_bytes(b"half")
    rmdir, others = Path.rmdir, iter(["b", "a"])

    def write_first(folder: Path) -> None:
        for name in others:
            (old / name).touch()
            break
        rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", write_first)
    begun = outbox.begin()
    assert begun.last is None
    assert parts_in(tmp_path) == []
    assert draft_folders_in(tmp_path) == [os.path.basename(begun.drafts)]


def test_other_files_are_left_alone_and_unfinished_ones_deleted_when_a_query_begins(tmp_path: Path) -> None:
    names = ["notes.txt", f"{1:020d}-{1:020d}-0of1.bak", ".tmp-left"]
    for name in names:
        (tmp_path / name).touch()
    outbox = Outbox(tmp_path)
    assert outbox.next_entry(0) is None
    outbox.delete_up_to(100)
    assert parts_in(tmp_path) == sorted(names)
    outbox.begin()
    assert parts_in(tmp_path) == sorted(names[:2])


def test_an_outbox_that_cannot_be_written_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "outbox").touch()
    with pytest.raises(OutboxError, match=rf"Outbox '{tmp_path}/outbox' cannot be (read|written): Not a directory"):
        Outbox(tmp_path / "outbox").begin()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_new_part_wakes_those_who_wait(tmp_path: Path, is_local: bool) -> None:
    outbox = Outbox(tmp_path / "outbox")
    watch = outbox.watch()
    watch.wait(60)
    drafts = outbox.begin(is_local=is_local).drafts
    watch.wait(60)
    write_part(drafts, OutboxPart(1, 1, 0, 1), results_at([]), BATCH)
    watch.wait(60)
    assert outbox.next_entry(0) is not None
