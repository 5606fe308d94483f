"""A batch may join the ledger of a query that is running: every batch of the query either sees it or does not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncebus.ledger import (
    BadCheckpoint,
    CheckpointTooOld,
    Generation,
    Ledger,
    LedgerBatch,
    LedgerInUse,
    LedgerMismatch,
    Writer,
    task_ledger,
)
from oncebus.ledger.aside_marks import joining_mark, open_mark
from tests.histories import SECOND, START, Batch, histories, rows_of, split, verdicts_of
from tests.ledger.owners import ELSEWHERE, HERE, dead_owner
from tests.ledger.test_ledger_properties import eager, memory_folder, run_batch, started
from tests.properties import search
from tests.reference import Message, Reference, Verdict

WINDOW = 3600 * SECOND


class Checkpoint:
    """The parts of a query's checkpoint that the ledger reads."""

    def __init__(self, folder: Path, query: str = "query") -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(f'{{"id":"{query}"}}')

    def plan(self, batch: int) -> None:
        (self.folder / "offsets" / str(batch)).touch()

    def commit(self, batch: int) -> None:
        (self.folder / "commits" / str(batch)).touch()


def judge_aside(opened: LedgerBatch, batch: Batch, lateness: int = 0) -> dict[Message, Verdict]:
    found: dict[Message, Verdict] = {}
    for part, messages in enumerate(split(batch.messages, batch.parts)):
        if messages:
            rows = rows_of(messages, lateness)
            place = opened.generation, opened.number
            verdicts = opened.ledger.judge(rows, *place, part=part, parts=batch.parts, clock=batch.clock)
            found |= verdicts_of(messages, verdicts)
    return found


def running(query: str) -> bool:
    return query == "query"


@given(
    history=histories(forgets=False),
    asides=st.lists(histories(most_batches=1, forgets=False), min_size=14, max_size=14),
    lateness=st.sampled_from([0, 0, 30 * SECOND]),
    fan=st.sampled_from([2, 2, 1000]),
    repeatable=st.sampled_from([1, 1, 2, 4]),
    data=st.data(),
)
@search(50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_history_with_asides_is_judged_as_the_reference_does(
    history: list[Batch], asides: list[list[Batch]], lateness: int, fan: int, repeatable: int, data: st.DataObject
) -> None:
    """Asides are open while the query goes on, merges and forgets; they join, fail or are refused."""
    reference, start = Reference(lateness), 0
    opened: tuple[LedgerBatch, Batch, dict[Message, Verdict], Reference, int, int] | None = None
    with memory_folder() as folder, eager(repeatable, fan):
        ledger, checkpoint = Ledger.open(f"{folder}/ledger"), Checkpoint(Path(folder) / "checkpoint")
        for number, batch in enumerate(history):
            checkpoint.plan(number)
            expected = reference.batch(batch.messages, batch.clock)
            for again in range(data.draw(st.integers(1, 2), label="times")):
                start += data.draw(st.integers(0, 3), label="restart") == 3 and again
                # A query that restarts has no other writer beside it than itself.
                newest = ledger.listing().main
                writer = Writer(f"{start:032x}", "query", HERE, newest.number if newest else 0)
                assert run_batch(ledger, writer, number, batch, lateness) == expected
            checkpoint.commit(number)
            if opened is None:
                if data.draw(st.integers(0, 1), label="opens"):
                    aside = ledger.batch(checkpoint=checkpoint.folder)
                    aside.begin(running, HERE)
                    side, model = asides[number][0], reference.aside()
                    wanted = model.batch(side.messages, side.clock)
                    opened = aside, side, wanted, model, len(reference.accepted), start
                continue
            aside, side, wanted, model, since, started_at = opened
            if start == started_at:
                assert judge_aside(aside, side, lateness) == wanted
            end = data.draw(st.sampled_from(["joins", "joins", "stays", "fails"]), label="end")
            if end == "stays":
                continue
            opened = None
            if end == "fails":
                aside.discard()
            elif not any(side.messages) or start != started_at:
                pass
            elif reference.join(model, since):
                aside.commit()
            else:
                with pytest.raises(LedgerInUse, match="accepted some of the same keys"):
                    aside.commit()
            aside.discard()
            assert not [name for name in os.listdir(ledger.location) if name.startswith("aside-")]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


STREAM = Writer("aa", "query", HERE)


def message(key: str, sequence: int) -> Batch:
    return Batch((Message(key, START + sequence, sequence, WINDOW),), 2**60, 1)


def batch_of_stream(
    ledger: Ledger, checkpoint: Checkpoint, number: int, key: str, writer: Writer = STREAM
) -> dict[Message, Verdict]:
    checkpoint.plan(number)
    found = run_batch(ledger, writer, number, message(key, number), 0)
    checkpoint.commit(number)
    return found


def is_duplicate(found: dict[Message, Verdict]) -> bool:
    [verdict] = found.values()
    return verdict.is_duplicate


def open_aside(ledger: Ledger, checkpoint: Checkpoint, key: str) -> LedgerBatch:
    aside = ledger.batch(checkpoint=checkpoint.folder)
    aside.begin(running, HERE)
    judge_aside(aside, message(key, 1000))
    return aside


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("the condition did not come true")


def test_a_live_query_sees_the_keys_of_an_aside_from_its_next_batch_on(ledger: Ledger, checkpoint: Checkpoint) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    open_aside(ledger, checkpoint, "x").commit()
    open_aside(ledger, checkpoint, "y").commit()
    for number, (key, known) in enumerate([("x", True), ("y", True), ("z", False)], 1):
        assert is_duplicate(batch_of_stream(ledger, checkpoint, number, key)) == known
    # After a restart too, and after a repetition; and the aside saw what the query had committed.
    restarted = Writer("bb", "query", HERE, follows=4)
    assert is_duplicate(run_batch(ledger, restarted, 3, message("x", 3), 0))
    aside = ledger.batch(checkpoint=checkpoint.folder)
    aside.begin(running, HERE)
    assert is_duplicate(judge_aside(aside, message("a", 1000)))


def test_an_aside_waits_for_the_batch_that_is_running(ledger: Ledger, checkpoint: Checkpoint) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    aside = open_aside(ledger, checkpoint, "x")
    checkpoint.plan(1)
    assert ledger.join(STREAM, 1).number == 1
    thread, results = in_thread(aside.commit)
    wait_until(lambda: any(name.endswith(".joins.2") for name in os.listdir(ledger.location)))
    # The batch that runs does not see the aside, and goes on.
    assert not is_duplicate(run_batch(ledger, STREAM, 1, message("b", 1), 0))
    assert not results
    checkpoint.commit(1)
    thread.join()
    assert results == [None]
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 2, "x"))


def test_a_batch_that_is_planned_meanwhile_waits_for_the_aside(
    ledger: Ledger, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    aside = open_aside(ledger, checkpoint, "x")
    batch_of_stream(ledger, checkpoint, 1, "b")
    waits, goes_on = threading.Event(), threading.Event()
    sleep, claim_first = time.sleep, Ledger.claim_first

    def held_up(self: Ledger, generation: Generation) -> bool:
        assert goes_on.wait(60)
        return claim_first(self, generation)

    def sleep_and_tell(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(Ledger, "claim_first", held_up)
    monkeypatch.setattr(time, "sleep", sleep_and_tell)
    joins, results = in_thread(aside.commit)
    wait_until(lambda: any(name.endswith(".joins.2") for name in os.listdir(ledger.location)))
    later, judged = in_thread(lambda: batch_of_stream(ledger, checkpoint, 2, "x"))
    assert waits.wait(60)
    assert not judged
    goes_on.set()
    joins.join()
    later.join()
    assert results == [None]
    [found] = judged
    assert isinstance(found, dict)
    assert is_duplicate(found)


def test_keys_that_both_accept_are_refused(ledger: Ledger, checkpoint: Checkpoint) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    aside = open_aside(ledger, checkpoint, "x")
    assert not is_duplicate(batch_of_stream(ledger, checkpoint, 1, "x"))
    with pytest.raises(LedgerInUse, match=r"accepted some of the same keys while the batch was open\. Nothing"):
        aside.commit()
    assert ledger.summary().ids == 2
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 2, "x"))


def test_a_query_that_ended_in_a_batch_must_finish_it_first(ledger: Ledger, checkpoint: Checkpoint) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    checkpoint.plan(1)
    aside = ledger.batch(checkpoint=checkpoint.folder)
    aside.begin(lambda query: False, HERE)
    judge_aside(aside, message("x", 1000))
    with pytest.raises(LedgerInUse, match=r"ended in batch 1, which is not committed\. Start the query"):
        aside.commit()
    assert ledger.summary().ids == 1


def test_a_query_that_goes_back_behind_an_aside_is_refused(ledger: Ledger, checkpoint: Checkpoint) -> None:
    for number in range(3):
        batch_of_stream(ledger, checkpoint, number, f"k{number}")
    open_aside(ledger, checkpoint, "x").commit()
    with pytest.raises(CheckpointTooOld, match="can go back to batch 3 of query query at most"):
        ledger.join(Writer("bb", "query", HERE, follows=1), 2)
    assert ledger.join(Writer("bb", "query", HERE, follows=1), 3).number == 3


def test_two_live_queries_are_refused_after_an_aside_too(ledger: Ledger, checkpoint: Checkpoint) -> None:
    batch_of_stream(ledger, checkpoint, 0, "a")
    open_aside(ledger, checkpoint, "x").commit()
    with pytest.raises(LedgerInUse, match="is being written by query query"):
        ledger.predecessor(running, HERE)
    with pytest.raises(LedgerInUse, match="is being written by query query"):
        ledger.join(Writer("cc", "other", ELSEWHERE), 0)
    plain = ledger.batch()
    with pytest.raises(LedgerInUse, match=r"A batch can join while a query runs, .*batch\(checkpoint=…\)"):
        plain.begin(running, HERE)
    assert batch_of_stream(ledger, checkpoint, 1, "x")


@pytest.mark.parametrize("is_dead", [True, False])
def test_an_aside_that_died_does_not_stop_the_query(
    ledger: Ledger, checkpoint: Checkpoint, is_dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it may be alive, the query waits for a while; and if it comes back, it is refused."""
    batch_of_stream(ledger, checkpoint, 0, "a")
    aside = open_aside(ledger, checkpoint, "x")
    generation = aside.generation
    if is_dead:
        ledger.mark(open_mark(2, generation.token, 1), dead_owner().to_json())
    else:
        monkeypatch.setattr(task_ledger, "PATIENCE_SECONDS", 0.2)
    ledger.mark(joining_mark(2, generation.token))
    assert not is_duplicate(batch_of_stream(ledger, checkpoint, 1, "x"))
    with pytest.raises(LedgerInUse, match="could not join"):
        aside.commit()
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 2, "a"))
    assert ledger.summary().ids == 2


@pytest.mark.parametrize("late", [0, 2])
def test_an_aside_that_dies_while_a_batch_runs_changes_nothing(
    ledger: Ledger, checkpoint: Checkpoint, late: int
) -> None:
    """Some tasks of the batch have published before the mark, others come after it; or a task is two batches late."""
    for number in range(3):
        batch_of_stream(ledger, checkpoint, number, f"k{number}")
    aside = open_aside(ledger, checkpoint, "x")
    checkpoint.plan(3)
    generation = ledger.join(STREAM, 3)
    rows = {part: rows_of([Message(f"part {part}", START, part, WINDOW)]) for part in (0, 1)}
    ledger.judge(rows[0], generation, 3, part=0, parts=2, clock=2**60)
    ledger.mark(open_mark(2, aside.generation.token, 3), dead_owner().to_json())
    ledger.mark(joining_mark(2, aside.generation.token))
    assert ledger.join(STREAM, 3 - late) == generation
    ledger.judge(rows[1], generation, 3, part=1, parts=2, clock=2**60)
    assert ledger.join(STREAM, 4) == generation
    for part in (0, 1):
        again = ledger.judge(rows[part], generation, 4, part=part, parts=2, clock=2**60)
        assert again.is_duplicate.all()
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 5, "k2"))
    with pytest.raises(LedgerInUse, match="could not join"):
        aside.commit()
    checkpoint.plan(4)
    checkpoint.commit(4)
    open_aside(ledger, checkpoint, "y").commit()
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 6, "y"))
    assert ledger.listing().generations[-1].number == 4


def test_the_wrong_checkpoint_is_refused(ledger: Ledger, checkpoint: Checkpoint, tmp_path: Path) -> None:
    for number in range(3):
        batch_of_stream(ledger, checkpoint, number, f"k{number}")
    other = Checkpoint(tmp_path / "other", "another")
    with pytest.raises(LedgerMismatch, match=r"last written by query query, but checkpoint '.*other' belongs to query"):
        ledger.batch(checkpoint=other.folder)
    older = Checkpoint(tmp_path / "older")
    older.plan(0)
    older.commit(0)
    aside = open_aside(ledger, older, "x")
    with pytest.raises(BadCheckpoint, match=r"ends with batch 0, but ledger .* knows batch 2 of the query"):
        aside.commit()
    with pytest.raises(ValueError, match="Give either a checkpoint, outside foreachBatch, or a query and a batch"):
        ledger.batch(checkpoint=checkpoint.folder, query="x", batch=1)


def test_a_checkpoint_without_the_first_numbered_batch_is_refused(ledger: Ledger, checkpoint: Checkpoint) -> None:
    """The name of such a query says nothing about its checkpoint."""
    first = ledger.batch(query="orders", batch=0)
    first.begin(running, HERE)
    with first:
        judge_aside(first, message("x", 0))
    aside = open_aside(ledger, checkpoint, "x")
    with pytest.raises(BadCheckpoint, match=r"has no batch, but ledger .* knows batch 0 of the query"):
        aside.commit()


def test_a_query_of_numbered_batches_continues_after_an_aside(ledger: Ledger, checkpoint: Checkpoint) -> None:
    """A batch of it that Spark repeats, although its block had ended, must have been committed before the aside."""

    def numbered(number: int, key: str) -> bool:
        checkpoint.plan(number)
        opened = ledger.batch(query="orders", batch=number)
        opened.begin(lambda query: False, HERE)
        found = judge_aside(opened, message(key, number))
        opened.commit()
        checkpoint.commit(number)
        return is_duplicate(found)

    assert not numbered(0, "a")
    open_aside(ledger, checkpoint, "x").commit()
    assert numbered(1, "x")
    assert numbered(2, "a")


def test_a_batch_whose_query_is_taken_over_before_it_begins_is_an_ordinary_one(
    ledger: Ledger, checkpoint: Checkpoint
) -> None:
    for number in range(10):
        batch_of_stream(ledger, checkpoint, number, f"k{number}")
    beside, over = ledger.batch(checkpoint=checkpoint.folder), ledger.batch(take_over=True)
    over.begin(lambda _: False, HERE)
    with over:
        judge_aside(over, message("x", 20))
    beside.begin(lambda _: False, HERE)
    with beside:
        assert is_duplicate(judge_aside(beside, message("x", 21)))
    assert [each.is_batch for each in ledger.listing().generations] == [False, True, True]


def test_a_query_that_starts_before_a_batch_beside_it_begins_keeps_its_turn(
    ledger: Ledger, checkpoint: Checkpoint
) -> None:
    beside = ledger.batch(checkpoint=checkpoint.folder)
    batch_of_stream(ledger, checkpoint, 0, "x")
    beside.begin(running, HERE)
    with beside:
        assert is_duplicate(judge_aside(beside, message("x", 1)))
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 1, "x"))


def test_a_checkpoint_of_a_query_that_never_wrote_gives_an_ordinary_batch(
    ledger: Ledger, checkpoint: Checkpoint
) -> None:
    aside = ledger.batch(checkpoint=checkpoint.folder)
    aside.begin(running, HERE)
    judge_aside(aside, message("x", 1000))
    aside.commit()
    assert is_duplicate(batch_of_stream(ledger, checkpoint, 0, "x"))
    assert started(ledger, 1).follows == 2
