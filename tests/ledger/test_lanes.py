"""Input that is partitioned by the key already: right verdicts, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.ledger import LANES, Ledger, NotPartitioned, Writer
from tests.histories import SECOND, START, Batch, histories, rows_of, split, verdicts_of
from tests.ledger.owners import HERE
from tests.ledger.test_ledger_properties import eager, memory_folder, started
from tests.properties import search
from tests.reference import Message, Reference, Verdict


@given(history=histories(forgets=False), moves=st.lists(st.integers(0, 5), min_size=14, max_size=14), data=st.data())
@search(50)
def test_a_history_in_lanes(history: list[Batch], moves: list[int], data: st.DataObject) -> None:
    """The keys move to other lanes from batch to batch, and some batches are in ordinary parts."""
    reference, start = Reference(), 0
    with memory_folder() as folder, eager(1, 2):
        ledger = Ledger.open(f"{folder}/ledger")
        for number, (batch, move) in enumerate(zip(history, moves, strict=False)):
            expected = reference.batch(batch.messages, batch.clock)
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                start += data.draw(st.integers(0, 1), label="restart")
                found: dict[Message, Verdict] = {}
                for part, messages in enumerate(split(batch.messages, batch.parts)):
                    generation = ledger.join(started(ledger, start), number)
                    if messages:
                        lane, lanes = (part + move, LANES) if move else (part, batch.parts)
                        rows = rows_of(messages)
                        verdicts = ledger.judge(rows, generation, number, part=lane, parts=lanes, clock=batch.clock)
                        found |= verdicts_of(messages, verdicts)
                        ledger.tidy(generation, number, part=lane, parts=lanes)
                assert found == expected


@given(
    batch=histories(most_batches=1, sizes=8, forgets=False),
    lanes=st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
@search(100)
def test_wrong_lanes_are_refused_or_do_not_matter(batch: list[Batch], lanes: list[int]) -> None:
    messages = batch[0].messages
    expected = Reference().batch(messages, batch[0].clock)
    with memory_folder() as folder:
        ledger = Ledger.open(f"{folder}/ledger")
        generation = ledger.join(Writer("aa", "query", HERE), 0)
        found: dict[Message, Verdict] = {}
        try:
            for lane in range(3):
                some = [message for message, chosen in zip(messages, lanes, strict=False) if chosen == lane]
                if some:
                    verdicts = ledger.judge(rows_of(some), generation, 0, part=lane, parts=LANES, clock=2**60)
                    found |= verdicts_of(some, verdicts)
        except NotPartitioned:
            where = {(m.key, lane) for m, lane in zip(messages, lanes, strict=False) if m.key is not None}
            assert len(where) > len({key for key, _ in where}), "refused without need"
            return
        assert found == expected


def test_of_two_tasks_at_once_one_is_refused(tmp_path: Path) -> None:
    """Both have read the ledger before either publishes."""
    ledger = Ledger.open(tmp_path)
    generation = ledger.join(Writer("aa", "query", HERE), 0)
    rows = [rows_of([Message("k", START + at, at, SECOND)]) for at in range(2)]
    early = ledger.decide(rows[0], generation, 0, part=0, parts=LANES, clock=2**60)
    assert not early.verdicts.is_duplicate.any()
    early.publish()
    with pytest.raises(NotPartitioned, match="Partition 1 of the input has a key that another partition of batch 0"):
        ledger.judge(rows[1], generation, 0, part=1, parts=LANES, clock=2**60)
    with pytest.raises(NotPartitioned, match="Partition 0 of the input has a key that another partition of batch 0"):
        ledger.judge(rows[0], generation, 0, part=0, parts=LANES, clock=2**60)


def test_a_lane_that_has_other_rows_when_it_is_evaluated_again(tmp_path: Path) -> None:
    """As behind `coalesce`, if the lane were the number of the task; or if the source changes meanwhile."""
    ledger = Ledger.open(tmp_path)
    generation = ledger.join(Writer("aa", "query", HERE), 0)

    def judge(*keys: str) -> None:
        rows = rows_of([Message(key, START, at, SECOND) for at, key in enumerate(keys)])
        assert not ledger.judge(rows, generation, 0, part=3, parts=LANES, clock=2**60).is_duplicate.any()

    judge("a", "b")
    judge("a", "b")
    judge("c")
    with pytest.raises(NotPartitioned, match="Partition 3 of batch 0 was evaluated twice, with different rows that"):
        judge("b", "d")
