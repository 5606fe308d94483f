"""A ledger and its writers have identities: another ledger or writer under the same name is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.ledger import (
    BadCheckpoint,
    CheckpointTooOld,
    Generation,
    Ledger,
    LedgerBatch,
    LedgerInUse,
    LedgerMismatch,
    LedgerNotShared,
    NotRepeatable,
    TaskLedger,
    Writer,
)
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import Position, RunName
from oncebus.ledger.storage import Piece, storage_at
from tests.histories import SECOND, START, Batch, histories, rows_of, split, verdicts_of
from tests.ledger.owners import ELSEWHERE, HERE
from tests.ledger.test_generations import write
from tests.ledger.test_ledger_properties import eager, memory_folder
from tests.properties import search
from tests.reference import Message, Reference, Verdict

KEY = ["key string"]


def test_a_token_or_name_that_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    for token in ("nightly-etl", "ABC", ""):
        with pytest.raises(ValueError, match="must be lower-case hexadecimal"):
            Writer(token, "query", HERE)
    here = Position(1, 0)
    assert RunName(here, here, 0, 1, 5, -7, "a1", 12).file_name() == "run-1.0-1.0-0.1-5--7-12-a1.run"
    with pytest.raises(ValueError, match="could not be parsed again"):
        RunName(here, here, 0, 1, 5, 7, "nightly-etl").file_name()
    with pytest.raises(ValueError, match="could not be parsed again"):
        Ledger.open(tmp_path).judge(
            rows_of([Message("k", START, 1, SECOND)]),
            Generation(1, "x-y", "q", 0, 0, 0, None),
            0,
            part=0,
            parts=1,
            clock=1,
        )


def test_a_token_alone_does_not_make_a_writer(tmp_path: Path) -> None:
    """One call is started as two queries."""
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", HERE), 0)
    write(ledger, Writer("a", "one", HERE), 1)
    with pytest.raises(LedgerInUse, match="was started as two queries, one and two, but ledger"):
        ledger.join(Writer("a", "two", HERE), 0)
    first = ledger.join(Writer("a", "one", HERE), 2)
    assert ledger.join(Writer("a", "two", HERE, follows=1), 0).number == 2
    with pytest.raises(LedgerInUse, match="has been taken over from query one by query two"):
        ledger.judge(rows_of([Message("k", START, 1, SECOND)]), first, 2, part=0, parts=1, clock=2**62)


def test_a_second_operator_of_a_query_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(tmp_path)
    refusal = (
        r"is also written by another detect_duplicates call of the same query one\. Give each call a ledger of its own"
    )
    write(ledger, Writer("a", "one", HERE), 0)
    with pytest.raises(LedgerInUse, match=refusal):
        ledger.join(Writer("b", "one", HERE), 0)
    # The query restarts, and both calls are made after the first start has ended.
    write(ledger, Writer("c", "one", HERE, follows=1), 0)
    with pytest.raises(LedgerInUse, match=refusal):
        ledger.join(Writer("d", "one", HERE, follows=1), 0)

    claim = Ledger.claim

    def claim_later(self: Ledger, generation: Generation) -> Generation:
        monkeypatch.setattr(Ledger, "claim", claim)
        ledger.join(Writer("e", "one", HERE, follows=2), 0)
        return claim(self, generation)

    monkeypatch.setattr(Ledger, "claim", claim_later)
    with pytest.raises(LedgerInUse, match=refusal):
        ledger.join(Writer("f", "one", HERE, follows=2), 0)


def test_two_tasks_that_claim_at_once_both_get_the_generation_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second task listed the folder before a late run of the predecessor appeared."""
    ledger = Ledger.open(tmp_path)
    before = ledger.join(Writer("a", "one", HERE), 0)
    writer = Writer("b", "two", HERE, follows=1)
    claim, claimed = Ledger.claim, list[Generation]()

    def claim_later(self: Ledger, generation: Generation) -> Generation:
        monkeypatch.setattr(Ledger, "claim", claim)
        for batch in range(3):
            ledger.judge(rows_of([Message(f"k{batch}", START, 1, SECOND)]), before, batch, part=0, parts=1, clock=2**62)
        claimed.append(ledger.join(writer, 0))
        return claim(self, generation)

    monkeypatch.setattr(Ledger, "claim", claim_later)
    found = ledger.join(writer, 0)
    assert [found] == claimed == [ledger.newest()]
    assert found.keeps_below == 2


def test_rows_of_another_batch_under_the_same_number_are_refused(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    generation = ledger.join(Writer("a", "one", HERE), 0)
    rows = rows_of([Message("k", START, 1, SECOND)])
    for _ in range(2):
        ledger.judge(rows, generation, 0, part=0, parts=1, clock=2**62, cut=5)
    with pytest.raises(
        LedgerInUse, match=r"has different rows as batch 0 of query one\. In foreachBatch, evaluate only"
    ):
        ledger.judge(rows, generation, 0, part=0, parts=1, clock=2**62, cut=6)


def test_rows_of_two_batches_that_are_judged_at_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task lists the folder before the other has published."""
    ledger = Ledger.open(tmp_path)
    generation = ledger.join(Writer("a", "one", HERE), 0)
    rows, publish = rows_of([Message("k", START, 1, SECOND)]), LocalStorage.publish

    def publish_late(self: LocalStorage, name: str, pieces: Sequence[Piece]) -> None:
        monkeypatch.setattr(LocalStorage, "publish", publish)
        ledger.judge(rows, generation, 0, part=0, parts=1, clock=2**62, cut=6)
        ledger.tidy(generation, 0, part=0, parts=1)
        publish(self, name, pieces)

    monkeypatch.setattr(LocalStorage, "publish", publish_late)
    ledger.judge(rows, generation, 0, part=0, parts=1, clock=2**62, cut=5)
    with pytest.raises(LedgerInUse, match="has different rows as batch 0 of query one"):
        ledger.tidy(generation, 0, part=0, parts=1)


def test_a_restarted_plan_cannot_go_back_further_than_a_new_one(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    writer = Writer("a", "one", HERE)
    for batch in range(21):
        write(ledger, writer, batch)
    assert ledger.join(writer, 13).number == 1
    with pytest.raises(CheckpointTooOld, match="can go back to batch 13 of query one at most"):
        ledger.join(writer, 12)


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    here = Ledger.open(tmp_path / "here")
    identity = here.describe_or_check(KEY)
    assert here.describe_or_check(KEY) == identity
    with pytest.raises(LedgerNotShared, match=r"cannot see the driver's ledger at '.*there': it finds no ledger there"):
        TaskLedger.at(str(tmp_path / "there"), identity).join(Writer("a", "one", HERE), 0)
    assert Ledger.open(tmp_path / "there").describe_or_check(KEY) != identity
    there = Ledger(storage_at(tmp_path / "there"), identity)
    for use in (there.summary, there.batch, lambda: there.join(Writer("a", "one", HERE), 0)):
        with pytest.raises(LedgerNotShared, match=r"ledger at '.*there': it finds another ledger there"):
            use()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["ledger.json"]


def test_a_ledger_that_is_replaced_under_an_open_batch_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    ledger.describe_or_check(KEY)
    batch = ledger.batch()
    ledger.judge(rows_of([Message("k", START, 1, SECOND)]), batch.generation, 0, part=0, parts=1, clock=2**62)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(LedgerNotShared, match="it finds no ledger there"):
        batch.commit()


def test_the_description_of_a_ledger(tmp_path: Path) -> None:
    identity = Ledger.open(tmp_path).describe_or_check(KEY)
    described = {"format": 1, "id": identity, "key": KEY, "secret": None}
    assert json.loads((tmp_path / "ledger.json").read_text()) == described


def test_a_checkpoint_says_what_is_committed(tmp_path: Path) -> None:
    ledger, checkpoint = Ledger.open(tmp_path / "ledger"), tmp_path / "checkpoint"
    for batch in range(3):
        write(ledger, Writer("a", "one", HERE), batch)
    with pytest.raises(BadCheckpoint, match="is not the checkpoint of a streaming query"):
        ledger.confirm(checkpoint=checkpoint)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"one"}')
    assert ledger.confirm(checkpoint=checkpoint) is None
    (checkpoint / "commits").mkdir()
    for name in ("0", "1", ".2.tmp", ".1.crc"):
        (checkpoint / "commits" / name).touch()
    assert ledger.confirm(checkpoint=checkpoint) == 1
    assert ledger.join(Writer("b", "two", HERE, follows=1), 0).keeps_below == 2
    with pytest.raises(LedgerMismatch, match="was last written by query two, not by query one"):
        ledger.confirm(checkpoint=checkpoint)


def judged(opened: LedgerBatch, batch: Batch) -> dict[Message, Verdict]:
    """Judge a batch of a query, as the driver and its tasks do."""
    opened.begin(lambda query: False, HERE)
    found: dict[Message, Verdict] = {}
    for part, messages in enumerate(split(batch.messages, batch.parts)):
        if messages:
            rows, ledger = rows_of(messages), opened.ledger
            place = opened.generation, opened.number
            verdicts = ledger.judge(rows, *place, part=part, parts=batch.parts, clock=batch.clock)
            found |= verdicts_of(messages, verdicts)
            ledger.tidy(*place, part=part, parts=batch.parts)
    return found


@given(history=histories(most_batches=10), data=st.data())
@search(200)
def test_a_batch_of_a_query_may_be_repeated_after_it_has_joined(history: list[Batch], data: st.DataObject) -> None:
    """Also after it has failed or been abandoned. A batch that is never repeated leaves no trace."""
    with memory_folder() as folder, eager(data.draw(st.sampled_from([1, 2, 4]), label="repeatable"), 2):
        reference = Reference()
        ledger = Ledger.open(f"{folder}/ledger")
        for number, batch in enumerate(history):
            ends = data.draw(st.lists(st.sampled_from(["joins", "fails", "abandoned"]), max_size=3), label="ends")
            before = Reference(horizon=reference.horizon, remembered=list(reference.remembered))
            expected = reference.batch(batch.messages, batch.clock)
            for end in [*ends, data.draw(st.sampled_from(["joins", "fails"]), label="last")]:
                if end == "abandoned":
                    # The attempt may have had other rows, which must not count.
                    others = Batch((Message("other", batch.clock, 10**6, 60 * SECOND),), batch.clock, 1)
                    judged(ledger.batch(query="orders", batch=number), others)
                    continue
                opened = ledger.batch(query="orders", batch=number)
                assert judged(opened, batch) == expected
                if end == "joins":
                    opened.commit()
                else:
                    opened.discard()
            if end == "fails":
                reference = before
        # The next writer knows every key that has joined.
        again = Message("other", history[-1].clock + 1, 10**6 + 1, 60 * SECOND)
        later = Batch((again, *(message for batch in history for message in batch.messages)), 2**60, 1)
        if later.messages:
            assert judged(ledger.batch(query="new", batch=0), later) == reference.batch(later.messages, later.clock)


def test_a_batch_of_a_query_is_refused_after_a_later_one(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    batch = Batch((Message("k", START, 1, SECOND),), 2**60, 1)
    for number in (0, 1):
        opened = ledger.batch(query="orders", batch=number)
        judged(opened, batch)
        opened.commit()
    with pytest.raises(
        CheckpointTooOld, match=r"has batch 1 of query 'orders' already; .* give the query another name"
    ):
        ledger.batch(query="orders", batch=0)
    assert len(list(tmp_path.glob("generation-*"))) == 1
    for arguments in ({"query": "orders"}, {"batch": 1}, {"query": "orders", "batch": -1}):
        with pytest.raises(ValueError, match="give both, with a batch number of 0 or more"):
            ledger.batch(**arguments)


def test_a_second_batch_in_one_call_of_foreach_batch_is_refused(tmp_path: Path) -> None:
    """In a new run, the same number is a repeated batch."""
    ledger = Ledger.open(tmp_path)

    def opened(run: str) -> LedgerBatch:
        batch = ledger.batch(query="orders", batch=0)
        batch.begin(lambda query: False, HERE, run)
        ledger.judge(rows_of([Message("k", START, 1, SECOND)]), batch.generation, 0, part=0, parts=1, clock=2**62)
        return batch

    refusal = "has judged batch 0 of query 'orders' in this run already"
    with opened("one"), pytest.raises(LedgerInUse, match=refusal):
        opened("one")
    with pytest.raises(LedgerInUse, match=refusal):
        opened("one")
    assert ledger.summary().ids == 1
    opened("two").discard()
    with opened("two"):
        pass
    with pytest.raises(
        NotRepeatable, match=r"Give query and batch: Ledger\.open\(…\)\.batch\(query=…, batch=batch_id\)"
    ):
        ledger.batch().begin(lambda query: False, HERE, "two")


def test_a_batch_of_a_query_keeps_other_writers_out_until_it_ends(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    batch = Batch((Message("k", START, 1, SECOND),), 2**60, 1)
    opened = ledger.batch(query="orders", batch=0)
    judged(opened, batch)
    with pytest.raises(LedgerInUse, match="is being written by query foreach orders"):
        judged(ledger.batch(query="other", batch=0), batch)
    with pytest.raises(LedgerInUse, match="is being written by query foreach orders"):
        ledger.join(Writer("a", "stream", ELSEWHERE), 0)
    opened.commit()
    judged(ledger.batch(query="other", batch=0), batch)
    with pytest.raises(LedgerInUse, match="has been taken over from query foreach orders by query foreach other"):
        opened.commit()
    with pytest.raises(CheckpointTooOld, match="Start the query with a new checkpoint"):
        ledger.batch(query="orders", batch=1)
