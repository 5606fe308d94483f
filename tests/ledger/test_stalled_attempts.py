"""An attempt that stalls, and goes on when the ledger has moved on, fails: the runs that it saw may be gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncebus.detection import Rows
from oncebus.ledger import CheckpointTooOld, Generation, Ledger, LedgerBatch, LedgerInUse, Writer
from oncebus.ledger.keys import key_digests
from tests.histories import SECOND, START, rows_of
from tests.ledger.owners import HERE
from tests.ledger.test_asides import Checkpoint
from tests.ledger.test_ledger_properties import eager
from tests.reference import Message

WRITER = Writer("aa", "query", HERE)


def rows(batch: int) -> Rows:
    """Return rows that have nothing left of their window ten batches later. Key 1 is in batches 1 and 2."""
    key = 1 if batch == 2 else batch
    return rows_of([Message(f"k{key}", START + batch * 10 * SECOND, batch, 20 * SECOND)])


def judge(ledger: Ledger, generation: Generation, batch: int) -> list[bool]:
    verdicts = ledger.judge(rows(batch), generation, batch, part=0, parts=1, clock=2**62)
    ledger.tidy(generation, batch, part=0, parts=1)
    return [bool(each) for each in verdicts.is_duplicate]


def files(ledger: Ledger) -> list[str]:
    return sorted(path.name for path in Path(ledger.location).iterdir())


@pytest.mark.parametrize("has_listing", [True, False])
def test_an_attempt_of_a_query_that_goes_on_after_many_batches_fails(tmp_path: Path, has_listing: bool) -> None:
    ledger = Ledger.open(tmp_path)
    for batch in (0, 1):
        judge(ledger, ledger.join(WRITER, batch), batch)
    generation, listing = ledger.enter(WRITER, 2)
    for batch in range(2, 16):
        assert judge(ledger, ledger.join(WRITER, batch), batch) == [batch == 2]
    before = files(ledger)
    assert not any(name.startswith("run-1.1-1.1-") for name in before)
    with pytest.raises(CheckpointTooOld, match="can go back to batch 8 of query query at most"):
        ledger.judge(rows(2), generation, 2, part=0, parts=1, clock=2**62, listing=listing if has_listing else None)
    assert files(ledger) == before


def test_an_attempt_in_foreach_batch_that_goes_on_after_the_next_batch_fails(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)

    def begin(batch: int) -> LedgerBatch:
        opened = ledger.batch(query="query", batch=batch)
        opened.begin(lambda _: False, HERE)
        return opened

    for batch in range(3):
        stalled = begin(batch)
        judge(ledger, stalled.generation, batch)
        stalled.commit()
    # The block of the next batch fails, so its runs go; but it has tidied.
    judge(ledger, begin(3).generation, 3)
    with pytest.raises(CheckpointTooOld, match="can go back to batch 3 of query foreach query at most"):
        judge(ledger, stalled.generation, 2)


def test_an_attempt_beside_a_query_that_goes_on_after_its_block_fails(tmp_path: Path) -> None:
    """Tidying may merge the batches that the aside saw with later ones. What it published would still count."""
    ledger, checkpoint = Ledger.open(tmp_path / "ledger"), Checkpoint(tmp_path / "checkpoint")
    ledger.describe_or_check(["key string"])

    def run(batch: int) -> None:
        checkpoint.plan(batch)
        generation = ledger.join(WRITER, batch)
        message = Message(f"k{batch}", START, batch, 86_400 * SECOND)
        ledger.judge(rows_of([message]), generation, batch, part=0, parts=1, clock=2**62)
        checkpoint.commit(batch)

    run(0)
    aside = ledger.batch(checkpoint=checkpoint.folder)
    aside.begin(lambda _: True, HERE)
    side = rows_of([Message("k0", START + 1, 7, 86_400 * SECOND), Message("aside", START, 8, 86_400 * SECOND)])

    def judge_aside() -> list[bool]:
        found = ledger.judge(side, aside.generation, 0, part=0, parts=1, clock=2**62)
        return [bool(each) for each in found.is_duplicate]

    assert judge_aside() == [True, False]
    run(1)
    aside.commit()
    with pytest.raises(LedgerInUse, match="Evaluate its rows inside its block"):
        judge_aside()


def test_a_run_that_is_published_late_does_not_bring_a_forgotten_key_back(tmp_path: Path) -> None:
    """The run was merged with the tombstone of its key, and everything else in the merged run has expired."""
    ledger, checkpoint = Ledger.open(tmp_path / "ledger"), Checkpoint(tmp_path / "checkpoint")
    ledger.describe_or_check(["key string"], has_secret=True)
    day = 86_400 * SECOND

    def some(message: Message) -> Rows:
        high, low = key_digests([message.key], ledger.key_columns(), ledger.secret())
        return replace(rows_of([message]), high=high, low=low)

    def run(batch: int, message: Message, writer: Writer) -> bool:
        checkpoint.plan(batch)
        generation = ledger.join(writer, batch)
        found = ledger.judge(some(message), generation, batch, part=0, parts=1, clock=2**62)
        ledger.tidy(generation, batch, part=0, parts=1)
        checkpoint.commit(batch)
        return bool(found.is_duplicate[0])

    def run_others(batches: range, writer: Writer) -> None:
        for batch in batches:
            run(batch, Message(f"k{batch}", START + batch * 30 * SECOND, batch, 20 * SECOND), writer)

    key = Message("key", START, 0, day)
    generation, listing = ledger.enter(WRITER, 0)
    stalled = ledger.decide(some(key), generation, 0, part=0, parts=1, clock=2**62, listing=listing)
    assert not run(0, key, WRITER)
    assert ledger.forget(["key"], checkpoint=checkpoint.folder) == 1
    with eager(1, 2):
        run_others(range(1, 12), WRITER)
    again = Writer("bb", "query", HERE, *ledger.predecessor(lambda _: False, HERE))
    run_others(range(12, 24), again)
    stalled.publish()
    assert not run(24, Message("key", START + 24 * 30 * SECOND, 24, day), again)
