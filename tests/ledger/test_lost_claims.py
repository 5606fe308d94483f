"""A batch joins while the storage fails: it joins, or it does not, or the error says that nobody knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oncebus.ledger import Ledger, LedgerBatch, LedgerMismatch, Owner, StorageError
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Piece
from tests.histories import SECOND, START, rows_of
from tests.ledger.test_asides import Checkpoint, batch_of_stream
from tests.reference import Message

WINDOW = 1_000_000 * SECOND
Opening = Callable[[], LedgerBatch]


@pytest.fixture(params=["a batch", "a batch beside a query"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Return a function that opens a batch of one ledger."""
    ledger = Ledger.open(tmp_path / "ledger")
    if request.param == "a batch":
        return ledger.batch
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    batch_of_stream(ledger, checkpoint, 0, "old")
    return lambda: ledger.batch(checkpoint=checkpoint.folder)


def accepts(batch: LedgerBatch, key: str) -> bool:
    """Join a batch with one row, and return whether it is new."""
    batch.begin(lambda _: True, Owner.this_process())
    rows = rows_of([Message(key, START, 1, WINDOW)])
    with batch:
        verdicts = batch.ledger.judge(rows, batch.generation, batch.number, part=0, parts=1, clock=2**62)
    return not verdicts.is_duplicate.any()


def fail(monkeypatch: pytest.MonkeyPatch, *outcomes: bool) -> None:
    """Make the next claims fail. An outcome says whether the claim is there all the same."""
    publish_new, left = LocalStorage.publish_new, list(outcomes)

    def publish_and_fail(self: LocalStorage, name: str, pieces: Sequence[Piece]) -> bool:
        if not left:
            return publish_new(self, name, pieces)
        if left.pop(0):
            publish_new(self, name, pieces)
        raise StorageError("The answer was lost")

    monkeypatch.setattr(LocalStorage, "publish_new", publish_and_fail)


def test_a_batch_whose_claim_is_there_has_joined(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, True)
    assert accepts(opening(), "k")
    assert not accepts(opening(), "k")


def test_a_batch_whose_claim_is_not_there_has_left_no_trace(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, False)
    batch = opening()
    with pytest.raises(StorageError, match=r"^The answer was lost$"):
        accepts(batch, "k")
    # Its claim is still on the way, and comes too late.
    assert not batch.ledger.claim_first(batch.generation)
    assert accepts(opening(), "k")


@pytest.mark.parametrize("is_there", [False, True])
def test_an_error_says_if_nobody_knows_whether_a_batch_has_joined(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    fail(monkeypatch, is_there, False)
    batch = opening()
    with pytest.raises(StorageError, match=f"has a batch of process {os.getpid()} as the last writer, it"):
        accepts(batch, "k")
    assert batch.ledger.is_committed(batch.generation) == is_there


def test_a_ledger_does_not_deny_a_batch_that_it_has_forgotten(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    first, last = ledger.batch(), ledger.batch()
    assert accepts(first, "0")
    for at in range(1, 80):
        last = ledger.batch()
        assert accepts(last, str(at))
    assert not accepts(ledger.batch(), "0")
    assert ledger.is_committed(last.generation)
    assert not ledger.is_committed(ledger.batch().generation)
    with pytest.raises(LedgerMismatch, match=r"has deleted 'generation-000001\.json'"):
        ledger.is_committed(first.generation)
