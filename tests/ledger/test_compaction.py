"""A compaction merges and deletes as writers do, and never changes a verdict, whatever happens meanwhile."""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from oncebus.ledger import (
    CorruptRun,
    Ledger,
    LedgerBatch,
    LedgerInUse,
    LedgerMismatch,
    Writer,
    compaction,
    joining,
    writers,
)
from oncebus.ledger.aside_marks import COMPACTION, open_mark
from oncebus.ledger.generations import EVERY_BATCH, Owner
from oncebus.ledger.joining import owner_text
from oncebus.ledger.merging import MOST_COMPACTED, choose_compaction
from oncebus.ledger.names import parse_run_names
from oncebus.programs.cli import main
from tests.histories import SECOND, START, Batch, histories
from tests.ledger.owners import ELSEWHERE, HERE, dead_owner
from tests.ledger.processes import Died
from tests.ledger.test_asides import Checkpoint, batch_of_stream, open_aside, running
from tests.ledger.test_forgetting import accepted, rows_of
from tests.ledger.test_ledger_properties import DyingStorage, eager, memory_folder, run_batch, started
from tests.properties import search
from tests.reference import Message, Reference, Verdict

KEY = ["key string"]


def ended(query: str) -> bool:
    return False


def files(ledger: Ledger) -> list[str]:
    return sorted(os.listdir(ledger.location))


def runs(ledger: Ledger) -> list[str]:
    return [str(run) for run in parse_run_names(files(ledger))]


def test_neighbours_become_one_run_up_to_a_size() -> None:
    assert choose_compaction([]) == []
    assert choose_compaction([1, 2, 3], most=6) == [range(3)]
    assert choose_compaction([1, 2, 4, 9, 0, 3, 3], most=6) == [range(2), range(2, 3), range(3, 4), range(4, 7)]
    assert MOST_COMPACTED >= 1_000_000


@given(
    history=histories(),
    lateness=st.sampled_from([0, 0, 1, 30 * SECOND]),
    fan=st.sampled_from([2, 3, 1000]),
    repeatable=st.sampled_from([1, 1, 2, 4]),
    most=st.sampled_from([1, 3, 1000]),
    data=st.data(),
)
@search(50)
def test_a_history_with_compactions_is_judged_as_the_reference_does(
    history: list[Batch], lateness: int, fan: int, repeatable: int, most: int, data: st.DataObject
) -> None:
    """Batches are repeated and queries restart after a compaction, or while it is about to merge."""
    reference, start = Reference(lateness), 0
    meanwhile: list[Callable[[], object]] = []

    def choose(sizes: Sequence[int]) -> list[range]:
        while meanwhile:
            meanwhile.pop()()
        return choose_compaction(sizes, most=most)

    with (
        memory_folder() as folder,
        eager(repeatable, fan),
        mock.patch.object(compaction, "choose_compaction", choose),
    ):
        ledger = Ledger.open(f"{folder}/ledger")
        ledger.describe_or_check(KEY)
        for number, batch in enumerate(history):
            expected = reference.batch(batch.messages, batch.clock)
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                start += data.draw(st.integers(0, 1), label="restart")
                judge = partial(run_batch, ledger, started(ledger, start), number, batch, lateness)
                moment = data.draw(st.sampled_from(["never", "before", "during"]), label="compacts")
                if moment == "before":
                    ledger.compact(ended)
                    before = files(ledger)
                    ledger.compact(ended)
                    assert files(ledger) == before, "a second compaction changes nothing"
                    assert ledger.verify().problems == []
                elif moment == "during":
                    found: list[dict[Message, Verdict]] = []
                    meanwhile.append(lambda judge=judge, found=found: found.append(judge()))  # type: ignore[misc]
                    ledger.compact(ended)
                    meanwhile.clear()
                    assert found in ([], [expected])
                assert judge() == expected


@given(history=histories(), data=st.data())
@search(30)
def test_a_compaction_that_dies_anywhere_changes_no_verdict(history: list[Batch], data: st.DataObject) -> None:
    reference, dead = Reference(), owner_text(DEAD)
    with memory_folder() as folder, eager(1, 1000):
        storage = DyingStorage(f"{folder}/ledger")
        ledger = Ledger(storage)
        ledger.describe_or_check(KEY)
        for number, batch in enumerate(history):
            expected = reference.batch(batch.messages, batch.clock)
            assert run_batch(ledger, started(ledger, 0), number, batch, 0) == expected
            storage.steps = data.draw(st.integers(0, 12), label="steps")
            with suppress(Died):
                ledger.compact(ended)
            storage.steps = 1 << 30
            # The process of the compaction has died in truth, and so has not removed its mark.
            for mark in ledger.listing().open_asides():
                ledger.mark(mark.name, dead)
            assert run_batch(ledger, started(ledger, 0), number, batch, 0) == expected
        ledger.compact(ended)
        assert not [name for name in files(ledger) if name.startswith("aside-")]
        assert ledger.verify().problems == []


DEAD = dead_owner()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger")


def test_old_ids_and_runs_go(ledger: Ledger) -> None:
    for number in range(6):
        accepted(ledger, [f"a{number}", f"bb{number}"], START + number * SECOND)
    before = len(runs(ledger))
    done = ledger.compact()
    # The newest batch stays as it is.
    assert (done.before.ids, done.after.ids, done.before.runs, done.after.runs) == (12, 12, before, 4)
    assert str(done).startswith("Before: 12 ids in 12 runs, 0.0 MB. After: 12 ids in 4 runs")
    assert accepted(ledger, ["a0", "bb5", "new"]) == ["new"]
    # All but the newest ids are forgotten now, one of them in a run with one that is not.
    accepted(ledger, ["late", "later!"], START + 3600 * SECOND)
    accepted(ledger, ["last"], START + 3601 * SECOND)
    assert ledger.summary().ids > 3
    ledger.compact()
    assert ledger.summary().ids == 3
    assert accepted(ledger, ["late", "later!", "last"], START + 3600 * SECOND) == []


def test_a_batch_that_was_evaluated_twice_keeps_its_keys(ledger: Ledger) -> None:
    """Its source grew between the evaluations, so it has two runs of one part, and both count."""
    ledger.describe_or_check(["id string"], has_secret=True)
    with ledger.batch() as batch:
        batch.begin(lambda _: False, Owner.this_process())
        for ids in (["a", "b"], ["a", "b", "c"]):
            rows = rows_of(ledger, ids, START)
            ledger.judge(rows, batch.generation, batch.number, part=0, parts=1, clock=2**62)
    for number in range(3):
        accepted(ledger, [f"later{number}"], START + SECOND)
    assert not ledger.verify().problems
    for _ in range(2):
        ledger.compact(ended)
        assert accepted(ledger, ["a", "b", "c", "later0"], START + SECOND) == []


def test_ids_whose_window_is_over_leave_a_run_of_which_most_stays(ledger: Ledger) -> None:
    """A writer would leave the run as it is."""
    ledger.describe_or_check(KEY)
    writer = Writer("aa", "query", HERE)
    soon, late = Message("soon", START, 1, SECOND), [Message(f"k{at}", START, 2 + at, 3600 * SECOND) for at in range(9)]
    run_batch(ledger, writer, 0, Batch((soon, *late), 2**60, 1), 0)
    for number in range(1, 10):
        run_batch(ledger, writer, number, Batch((Message("x", START + number * SECOND, number, 1),), 2**60, 1), 0)
    [first, *_] = runs(ledger)
    assert "-10." in first
    assert ledger.overview().expired == 1 + 8
    ledger.compact(ended)
    [first, *_] = runs(ledger)
    assert first.startswith("run-1.0-1.1-0.1-10-"), "merged with the next one, whose only id is needed for the horizon"
    assert accepted_by(ledger, writer, 10, late[0]) is False
    assert accepted_by(ledger, writer, 11, soon) is True


def accepted_by(ledger: Ledger, writer: Writer, number: int, message: Message) -> bool:
    again = message._replace(sequence=1000 + number)
    return not run_batch(ledger, writer, number, Batch((again,), 2**60, 1), 0)[again].is_duplicate


def test_a_live_writer_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    ledger.describe_or_check(KEY)
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    batch_of_stream(ledger, checkpoint, 0, "a")
    before = files(ledger)
    with pytest.raises(LedgerInUse, match=f"is being written by query query of process {os.getpid()}. Stop the query"):
        ledger.compact(running)
    with pytest.raises(LedgerInUse, match="is being written"):
        Ledger.open(ledger.location).compact()
    aside = open_aside(ledger, checkpoint, "x")
    with pytest.raises(LedgerInUse, match="A batch beside the query has opened ledger"):
        ledger.compact(ended)
    aside.discard()
    assert files(ledger) == before
    ledger.compact(ended)
    Ledger.open(ledger.location).join(Writer("bb", "other", ELSEWHERE, follows=1), 0)
    with pytest.raises(LedgerInUse, match=r"was written \d+ s ago by query other on another machine"):
        ledger.compact(ended)


def test_a_batch_that_has_just_joined_may_still_be_tidying(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted(ledger, ["a"])
    joined = ledger.newest()
    assert joined is not None
    for owner in (ELSEWHERE, None):
        Path(ledger.location, joined.file_name).write_bytes(replace(joined, owner=owner).to_json())
        with pytest.raises(LedgerInUse, match=r"was written \d+ s ago by a batch that may be ending\. Wait 60 s\."):
            ledger.compact()
    monkeypatch.setattr(writers, "SILENT_SECONDS", -1.0)
    ledger.compact()
    monkeypatch.undo()
    Path(ledger.location, joined.file_name).write_bytes(replace(joined, owner=DEAD).to_json())
    ledger.compact()


def test_two_compactions_do_not_meet(ledger: Ledger) -> None:
    accepted(ledger, ["a"])
    other = open_mark(COMPACTION, "bb", EVERY_BATCH)
    ledger.mark(other, owner_text(HERE))
    with pytest.raises(LedgerInUse, match="Another process compacts ledger") as raised:
        ledger.compact(take_over=True)
    assert f"': process {os.getpid()} on this machine, which left '{other}' at 20" in str(raised.value)
    assert str(raised.value).endswith("Compact the ledger when it has ended.")
    assert "\n" not in str(raised.value)
    ledger.mark(other, owner_text(DEAD))
    accepted(ledger, ["b"])
    ledger.compact()
    assert not [name for name in files(ledger) if name.startswith("aside-")]


def test_a_compaction_of_another_machine_can_be_taken_over(ledger: Ledger) -> None:
    accepted(ledger, ["a"])
    other = open_mark(COMPACTION, "bb", EVERY_BATCH)
    ledger.mark(other, owner_text(ELSEWHERE))
    with pytest.raises(LedgerInUse, match="Another process compacts ledger") as raised:
        ledger.compact()
    assert f"': process 1 on machine '{platform.node()}', which left '{other}' at 20" in str(raised.value)
    assert str(raised.value).endswith(" --take-over, or compact(take_over=True).")
    assert files(ledger).count(other) == 1
    ledger.mark(other, b"torn")
    with pytest.raises(LedgerInUse, match=r"an unknown process, which left 'aside-999999999-bb.* If it was killed"):
        ledger.compact()
    result = CliRunner().invoke(main, ["ledger", "compact", ledger.location, "--take-over"])
    assert (result.exit_code, result.output[:7]) == (0, "Before:")
    assert not [name for name in files(ledger) if name.startswith("aside-")]


def test_a_compaction_that_is_alive_when_it_is_taken_over_stops(ledger: Ledger) -> None:
    for number in range(4):
        accepted(ledger, [f"k{number}"], START + number)
    before = runs(ledger)

    def choose(sizes: Sequence[int]) -> list[range]:
        [mark] = [mark for mark in ledger.listing().asides if mark.is_compaction]
        ledger.mark(mark.name, owner_text(ELSEWHERE))
        with mock.patch.object(
            compaction, "choose_compaction", lambda sizes: [range(at, at + 1) for at in range(len(sizes))]
        ):
            Ledger.open(ledger.location).compact(take_over=True)
        return choose_compaction(sizes)

    with (
        mock.patch.object(compaction, "choose_compaction", choose),
        pytest.raises(LedgerInUse, match="Another process has taken over the compaction of ledger"),
    ):
        ledger.compact()
    assert runs(ledger) == before
    assert accepted(ledger, [f"k{number}" for number in range(5)], START + 5) == ["k4"]


def test_a_compaction_that_is_taken_over_while_it_publishes_says_so(ledger: Ledger) -> None:
    for number in range(4):
        accepted(ledger, [f"k{number}"], START + number)
    publish = ledger._storage.publish

    def late(name: str, pieces: Sequence[bytes]) -> None:
        if name.startswith("run-"):
            [mark] = [mark for mark in ledger.listing().asides if mark.is_compaction]
            publish(mark.name, [owner_text(ELSEWHERE)])
            Ledger.open(ledger.location).compact(take_over=True)
        publish(name, pieces)

    # Both make the same run. Of two equal ones, the token decides which one counts.
    tokens = iter([uuid.UUID(int=2), uuid.UUID(int=1)])
    with (
        mock.patch.object(ledger._storage, "publish", late),
        mock.patch.object(compaction, "uuid", mock.Mock(uuid4=lambda: next(tokens))),
        pytest.raises(LedgerInUse, match=r"has taken over the compaction of ledger .*\. If none is running, compact"),
    ):
        ledger.compact()
    assert accepted(ledger, [f"k{number}" for number in range(5)], START + 5) == ["k4"]


def test_a_run_that_another_process_deletes_meanwhile(ledger: Ledger) -> None:
    for number in range(4):
        accepted(ledger, [f"k{number}"], START + number)

    def choose(sizes: Sequence[int]) -> list[range]:
        Path(ledger.location, runs(ledger)[0]).unlink()
        return choose_compaction(sizes)

    with (
        mock.patch.object(compaction, "choose_compaction", choose),
        pytest.raises(LedgerInUse, match=r"was changed by another process\. Compact it again\."),
    ):
        ledger.compact()


def test_a_batch_that_died_leaves_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted(ledger, ["a", "b"])
    ours = runs(ledger)
    opened = ledger.batch()
    opened.begin(ended, HERE)
    _judge(ledger, opened)
    temporary = Path(ledger.location, ".tmp-old")
    temporary.write_bytes(b"half a run")
    os.utime(temporary, (0, 0))
    ledger.compact()
    assert len(runs(ledger)) == len(ours) + 1, "the batch may be open"
    assert not temporary.exists()
    assert ledger.overview().unclaimed.count == 1
    monkeypatch.setattr(compaction, "GIVEN_UP_SECONDS", -1.0)
    ledger.compact()
    assert runs(ledger) == ours
    # If the batch is alive after all, it loses no keys without saying so.
    with pytest.raises(LedgerInUse, match="Another writer wrote to ledger"):
        opened.commit()
    assert accepted(ledger, ["a", "b", "x"]) == ["x"]
    assert joining.GIVEN_UP_SECONDS == 86_400


def _judge(ledger: Ledger, opened: LedgerBatch) -> None:
    ledger.judge(rows_of(ledger, ["x"], START), opened.generation, opened.number, part=1, parts=2, clock=2**62)


def test_an_open_batch_joins_after_a_compaction(ledger: Ledger) -> None:
    for number in range(4):
        accepted(ledger, [f"k{number}"], START + number)
    with ledger.batch() as opened:
        opened.begin(ended, HERE)
        _judge(ledger, opened)
        Ledger.open(ledger.location).compact()
        _judge(ledger, opened)
    assert accepted(ledger, ["k0", "x", "y"]) == ["y"]


def test_nothing_is_deleted_if_a_file_is_missing_or_damaged(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(4):
        accepted(ledger, [f"k{number}"], START + number)
    missing = Path(ledger.location, "generation-000002.json")
    text = missing.read_bytes()
    missing.unlink()
    before = files(ledger)
    with pytest.raises(LedgerMismatch, match=r"lacks 'generation-000002\.json'\. Restore the file"):
        ledger.compact()
    assert files(ledger) == before
    missing.write_bytes(text)
    run = Path(ledger.location, runs(ledger)[0])
    good = run.read_bytes()
    run.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    os.utime(run, ns=(0, 12345))
    before = files(ledger)
    with pytest.raises(CorruptRun):
        ledger.compact()
    assert files(ledger) == before
    run.write_bytes(good)
    ledger.compact()
    assert accepted(ledger, [f"k{number}" for number in range(4)]) == []
    for folder, message in [(tmp_path / "none", "There is no ledger at"), (tmp_path, "is not a ledger: it holds")]:
        with pytest.raises(LedgerMismatch, match=message):
            Ledger.open(folder).compact()
    assert not (tmp_path / "none").exists()
