from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from oncebus.ledger import CheckpointTooOld, Committed, Generation, Ledger, LedgerInUse, LedgerMismatch, Owner, Writer
from oncebus.ledger.generations import EVERY_BATCH, keeps_of_predecessor, limits
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Piece
from tests.histories import SECOND, START, rows_of
from tests.ledger.owners import ELSEWHERE, HERE, dead_owner
from tests.reference import Message


def write(ledger: Ledger, writer: Writer, batch: int) -> Generation:
    generation = ledger.join(writer, batch)
    ledger.judge(rows_of([Message(f"k{batch}", START, batch, SECOND)]), generation, batch, part=0, parts=1, clock=2**62)
    return generation


def test_limits_follow_restarts_and_successors() -> None:
    def generation(number: int, query: str, keeps_below: int) -> Generation:
        return Generation(number, str(number), query, 0, keeps_below, 0, None)

    history = [
        generation(1, "a", 0),
        generation(2, "a", 5),
        generation(3, "a", 3),
        generation(4, "b", 9),
        generation(5, "b", 2),
    ]
    assert limits(history) == {1: 3, 2: 3, 3: 9, 4: 2, 5: EVERY_BATCH}


@pytest.mark.parametrize(
    ("recorded", "confirmed", "below"),
    [(None, None, 0), (None, -1, 0), (None, 4, 5), (3, None, 3), (3, 2, 3), (3, 3, 4), (3, 5, 4)],
)
def test_the_batches_that_another_query_keeps(recorded: int | None, confirmed: int | None, below: int) -> None:
    assert keeps_of_predecessor(recorded, confirmed) == below


def test_a_run_that_comes_late_does_not_count_for_the_query_that_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of a query without runs is held up after it has checked who writes."""
    ledger = Ledger.open(tmp_path)
    rows = rows_of([Message("k", START, 1, SECOND)])
    taken_over: list[Generation] = []
    publish = LocalStorage.publish

    def publish_late(self: LocalStorage, name: str, pieces: Sequence[Piece]) -> None:
        monkeypatch.setattr(LocalStorage, "publish", publish)
        taken_over.append(ledger.join(Writer("b0", "two", HERE, follows=1), 0))
        publish(self, name, pieces)

    first = ledger.join(Writer("aa", "one", HERE), 0)
    monkeypatch.setattr(LocalStorage, "publish", publish_late)
    ledger.judge(rows, first, 0, part=0, parts=1, clock=2**62)
    [second] = taken_over
    assert len(list(tmp_path.glob("run-1.0-*"))) == 1
    verdicts = ledger.judge(rows, second, 0, part=0, parts=1, clock=2**62)
    assert not verdicts.is_duplicate.any()


def test_a_generation_survives_a_round_trip_through_its_file() -> None:
    for owner in (HERE, None):
        generation = Generation(3, "t", "q", 1, 2, 0, owner, parts=2)
        assert Generation.from_json(generation.to_json()) == generation


def test_a_ledger_keeps_the_number_of_parts_of_its_query(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    assert ledger.listing().parts_of_query is None
    write(ledger, Writer("a", "one", dead_owner(), parts=2), 0)
    # A batch outside a query, and a query that keeps no number, leave it as it is.
    with ledger.batch(take_over=True) as batch:
        batch.parts = 7
        batch.begin(lambda _: False, HERE)
        ledger.judge(rows_of([Message("k", START, 1, SECOND)]), batch.generation, 0, part=0, parts=7, clock=2**62)
    write(ledger, Writer("b", "two", dead_owner(), *ledger.predecessor(lambda _: False, HERE)), 0)
    assert [generation.parts for generation in ledger.listing().generations] == [2, 2, 2]
    for number in range(2):
        with ledger.batch(query="three", batch=number) as batch:
            batch.parts = 5
            batch.begin(lambda _: False, HERE)
    assert [generation.parts for generation in ledger.listing().generations] == [2, 2, 2, 5]
    assert ledger.listing().parts_of_query == 5


def test_a_second_writer_is_refused_while_the_first_is_alive(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    alive = Owner(
        HERE.place, os.getppid(), Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    )
    write(ledger, Writer("a", "one", alive), 0)
    with pytest.raises(
        LedgerInUse, match=rf"is being written by query one of process {os.getppid()}\. Stop that query first"
    ):
        ledger.join(Writer("b", "two", HERE), 0)
    with pytest.raises(LedgerInUse, match="is being written by query one"):
        ledger.join(Writer("b", "one", HERE), 0)


def test_a_dead_writer_is_succeeded_at_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", dead_owner()), 0)
    assert ledger.join(Writer("b", "two", HERE, 1, has_ended=False), 0).number == 2


def test_a_writer_elsewhere_is_succeeded_when_it_has_been_silent(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", ELSEWHERE), 0)
    with pytest.raises(LedgerInUse, match="s ago by query one on another machine"):
        ledger.join(Writer("b", "two", HERE, 1, has_ended=False), 0)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    assert ledger.join(Writer("b", "two", HERE, 1, has_ended=False), 0).number == 2


def test_a_writer_that_was_succeeded_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", dead_owner()), 0)
    write(ledger, Writer("b", "two", HERE, follows=1), 0)
    with pytest.raises(LedgerInUse, match="has been taken over from query one by query two"):
        ledger.join(Writer("a", "one", HERE), 1)
    with pytest.raises(CheckpointTooOld, match="Start the query with a new checkpoint"):
        ledger.join(Writer("c", "one", HERE, follows=2), 1)


def test_one_of_two_writers_at_the_same_moment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(tmp_path)
    claim = Ledger.claim

    def claim_later(self: Ledger, generation: Generation) -> Generation:
        monkeypatch.setattr(Ledger, "claim", claim)
        ledger.join(Writer("b0b0", "rival", HERE), 0)
        return claim(self, generation)

    monkeypatch.setattr(Ledger, "claim", claim_later)
    with pytest.raises(LedgerInUse, match="was claimed by query rival at the same moment as by query one"):
        ledger.join(Writer("aa", "one", HERE), 0)
    assert ledger.join(Writer("b0b0", "rival", HERE), 1).number == 1


def test_a_query_cannot_go_back_further_in_two_steps_than_in_one(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    for batch in range(21):
        write(ledger, Writer("a", "one", HERE), batch)
    with pytest.raises(CheckpointTooOld, match="can go back to batch 13 of query one at most"):
        ledger.join(Writer("b", "one", HERE, follows=1), 6)
    write(ledger, Writer("c", "one", HERE, follows=1), 13)
    with pytest.raises(CheckpointTooOld, match="can go back to batch 13 of query one at most"):
        ledger.join(Writer("d", "one", HERE, follows=2), 6)


def test_a_restart_proves_that_earlier_batches_are_committed(tmp_path: Path) -> None:
    """A stale confirmation proves nothing."""
    proven = Ledger.open(tmp_path / "proven")
    for batch in range(3):
        write(proven, Writer("a", "one", HERE), batch)
    proven.join(Writer("b", "one", HERE, follows=1), 3)
    assert proven.join(Writer("c", "two", HERE, follows=2), 0).keeps_below == 3

    stale = Ledger.open(tmp_path / "stale")
    for batch in range(6):
        write(stale, Writer("a", "one", HERE), batch)
    stale.record_committed(Committed("one", 5))
    for batch in (2, 3):
        write(stale, Writer("b", "one", HERE, follows=1), batch)
    assert stale.join(Writer("c", "two", HERE, follows=2), 0).keeps_below == 3


def test_a_batch_is_refused_beside_a_stream(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    stream = Writer("a", "one", HERE)
    write(ledger, stream, 0)
    write(ledger, stream, 1)
    batch = ledger.batch()
    with pytest.raises(LedgerInUse, match="is being written by query one of this process"):
        ledger.predecessor(lambda query: query == "one", HERE)
    with pytest.raises(LedgerInUse, match="is being written by query one of this process"):
        batch.begin(lambda query: query == "one", HERE)
    ledger.judge(rows_of([Message("x", START, 1, SECOND)]), batch.generation, 0, part=0, parts=1, clock=2**62)
    write(ledger, stream, 2)
    with pytest.raises(LedgerInUse, match=r"Another writer wrote to .* while this batch was open\. Nothing"):
        batch.commit()
    assert write(ledger, stream, 3).number == 1
    assert ledger.summary().ids == 4


def test_a_batch_joins_once_and_stays(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    batch = ledger.batch()
    rows = rows_of([Message("x", START, 1, SECOND)])
    ledger.judge(rows, batch.generation, 0, part=0, parts=1, clock=2**62)
    batch.commit()
    batch.commit()
    batch.discard()
    assert ledger.summary().ids == 1
    later = ledger.batch()
    ledger.judge(rows, later.generation, 0, part=0, parts=1, clock=2**62)
    later.commit()
    with pytest.raises(LedgerInUse, match="has been taken over"):
        ledger.judge(rows, batch.generation, 0, part=0, parts=1, clock=2**62)


def test_a_query_that_restarts_elsewhere_goes_on_at_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", ELSEWHERE), 0)
    assert ledger.join(Writer("b", "one", HERE, 1, has_ended=False), 1).number == 2


def test_only_the_last_writer_can_be_confirmed(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    with pytest.raises(LedgerMismatch, match="was last written by query None, not by query x"):
        ledger.record_committed(Committed("x", 1))


def test_files_of_earlier_generations_are_deleted_when_nobody_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncebus.ledger.listing.KEPT_GENERATIONS", 3)
    ledger = Ledger.open(tmp_path)
    for number in range(1, 13):
        query = f"query {number}"
        generation = ledger.join(Writer(f"{number:x}", query, HERE, follows=number - 1), 0)
        # When the next batch comes, the window of the last but one is over.
        messages = [Message(f"k{each}", START + number * SECOND, each, 2 * SECOND) for each in (number - 1, number)]
        verdicts = ledger.judge(rows_of(messages), generation, 0, part=0, parts=1, clock=2**62)
        assert verdicts.is_duplicate.tolist() == [number > 1, False]
        ledger.tidy(generation, 0, part=0, parts=1)
        ledger.record_committed(Committed(query, 0))
    # There were twelve. Runs that are too young to be deleted keep theirs.
    assert len(list(tmp_path.glob("generation-*"))) <= 6
    assert [path.name for path in tmp_path.glob("confirmed-*")] == ["confirmed-000012-0"]
    with pytest.raises(CheckpointTooOld):
        ledger.join(Writer("ff", "query 10", HERE, follows=12), 1)


def test_a_run_keeps_its_generation_and_all_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next generation says whether the run counts."""
    monkeypatch.setattr("oncebus.ledger.listing.KEPT_GENERATIONS", 1)
    ledger = Ledger.open(tmp_path)
    day = 86_400 * SECOND
    for number in range(1, 6):
        generation = ledger.join(Writer(f"{number:x}", f"query {number}", HERE, follows=number - 1), 0)
        for batch in range(2):
            messages = [Message(f"k{number}.{batch}", START + number, number, day)] if number in (1, 5) else []
            ledger.judge(rows_of(messages), generation, batch, part=0, parts=1, clock=2**62)
            ledger.tidy(generation, batch, part=0, parts=1)
    assert len(list(tmp_path.glob("generation-*"))) == 5
    again = rows_of([Message("k1.0", START + 9, 9, day), Message("k1.1", START + 9, 9, day)])
    verdicts = ledger.judge(again, generation, 2, part=0, parts=1, clock=2**62)
    assert verdicts.is_duplicate.tolist() == [True, False]


def test_a_generation_that_is_deleted_while_it_is_read_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(tmp_path)
    for number in (1, 2):
        write(ledger, Writer(f"{number:x}", f"query {number}", HERE, follows=number - 1), 0)
    read = LocalStorage.read

    def read_late(self: LocalStorage, name: str) -> memoryview:
        monkeypatch.setattr(LocalStorage, "read", read)
        self.delete(["generation-000001.json"])
        return read(self, "generation-000001.json")

    ledger._known_generations.clear()
    monkeypatch.setattr(LocalStorage, "read", read_late)
    newest = ledger.newest()
    assert newest is not None
    assert newest.number == 2


def test_the_same_plan_cannot_go_back_before_its_start(tmp_path: Path) -> None:
    """Its generation sees the batches before its start, so every row of such a batch would be a duplicate of itself."""
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("aa", "query", HERE), 4)
    write(ledger, Writer("bb", "query", HERE, follows=1), 5)
    with pytest.raises(
        CheckpointTooOld, match=r"a start at batch 5, but batch 4 comes\. .* call detect_duplicates again"
    ):
        write(ledger, Writer("bb", "query", HERE, follows=1), 4)
    again = ledger.join(Writer("cc", "query", HERE, follows=2), 4)
    rows = rows_of([Message("k4", START, 4, SECOND)])
    assert not ledger.judge(rows, again, 4, part=0, parts=1, clock=2**62).is_duplicate.any()
