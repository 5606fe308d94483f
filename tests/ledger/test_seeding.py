"""A seed joins a ledger as a whole, and the next attempt goes on with the parts that a killed one has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.ledger import Ledger, LedgerBatch, LedgerInUse, Owner
from oncebus.ledger.run import Run
from oncebus.ledger.seeding import SeedBatch
from oncebus.values.errors import OncebusError
from tests.histories import SECOND, START, rows_of
from tests.reference import Message

FINGERPRINT = "5eed"
PARTS = 3
KEYS = [[f"part {part} key {at}" for at in range(4)] for part in range(PARTS)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.describe_or_check(["key string"], has_secret=True)
    return ledger


def write(batch: LedgerBatch, part: int, keys: list[str]) -> int:
    """Judge the rows of a part. Return how many of them are new."""
    rows = rows_of([Message(key, START, at, 60 * SECOND) for at, key in enumerate(keys)])
    verdicts = batch.ledger.judge(rows, batch.generation, 0, part=part, parts=PARTS, clock=2**60)
    return int((~verdicts.is_duplicate).sum())


def attempt(ledger: Ledger, parts: list[int], *, fingerprint: str = FINGERPRINT) -> SeedBatch:
    """Begin a seed and write some parts. The caller ends it."""
    batch = ledger.seed_batch(fingerprint)
    batch.begin(lambda _: False, Owner.this_process())
    for part in parts:
        assert write(batch, part, KEYS[part]) == len(KEYS[part])
    return batch


def end_process_of(ledger: Ledger) -> None:
    """Make the marks of open seeds those of a process that has ended."""
    folder = Path(ledger.location)
    ours = Owner.this_process()
    for mark in folder.glob("seed-*"):
        mark.write_bytes(Owner(ours.place, ours.pid, "another start").to_json())


def entries(ledger: Ledger) -> set[tuple[int, int, int]]:
    found = set[tuple[int, int, int]]()
    for name in ledger.listing().visible():
        run = Run(str(name), memoryview(Path(ledger.location, str(name)).read_bytes())).entries()
        found |= set(zip(run.high.tolist(), run.low.tolist(), run.time.tolist(), strict=True))
    return found


def test_a_seed_joins_at_its_end(ledger: Ledger) -> None:
    with attempt(ledger, [0, 1]) as batch:
        assert ledger.summary().ids == 0
        assert write(batch, 2, KEYS[2]) == 4
    assert ledger.summary().ids == 12
    assert not list(Path(ledger.location).glob("seed-*"))
    assert ledger.check().is_intact


def test_the_next_attempt_goes_on_where_a_killed_one_stopped(ledger: Ledger) -> None:
    attempt(ledger, [0, 2])
    end_process_of(ledger)
    assert ledger.summary().ids == 0
    assert not ledger.check().problems
    batch = attempt(ledger, [])
    assert batch.done == {0, 2}
    with batch:
        assert write(batch, 1, KEYS[1]) == 4
        assert batch.remembered() == 12
    whole = Ledger.open(Path(ledger.location).parent / "whole")
    whole.describe_or_check(["key string"], has_secret=True)
    with attempt(whole, [0, 1, 2]):
        pass
    assert entries(ledger) == entries(whole)
    assert ledger.summary().runs == whole.summary().runs == 3


@pytest.mark.parametrize(
    ("is_alive", "fingerprint"), [(True, FINGERPRINT), (False, "07e5")], ids=["alive", "another seed"]
)
def test_an_attempt_does_not_go_on_with_another_one(ledger: Ledger, is_alive: bool, fingerprint: str) -> None:
    first = attempt(ledger, [0])
    if not is_alive:
        end_process_of(ledger)
    second = attempt(ledger, [0, 1, 2], fingerprint=fingerprint)
    assert not second.done
    with second:
        pass
    assert ledger.summary().ids == 12
    with pytest.raises(LedgerInUse, match="run it again"):
        first.commit()
    assert ledger.summary().ids == 12


def test_one_of_two_attempts_at_once_goes_on(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the mark of the killed seed. The runs of the one that goes on are not those that the other discards."""
    attempt(ledger, [0])
    end_process_of(ledger)
    rivals: list[SeedBatch] = []

    def read_late(name: str) -> bytes:
        content = Path(ledger.location, name).read_bytes()
        monkeypatch.undo()
        rivals.append(attempt(ledger, []))
        return content

    monkeypatch.setattr(ledger, "read_mark", read_late)
    slow = attempt(ledger, [0])
    quick = rivals[0]
    assert quick.done == {0}
    assert not slow.done
    slow.discard()
    with quick:
        write(quick, 1, KEYS[1])
    assert ledger.summary().ids == 8


def test_a_seed_that_is_killed_twice_goes_on_each_time(ledger: Ledger) -> None:
    for part in range(PARTS):
        batch = attempt(ledger, [])
        assert batch.done == set(range(part))
        write(batch, part, KEYS[part])
        end_process_of(ledger)
    last = attempt(ledger, [])
    assert last.done == set(range(PARTS))
    with last:
        pass
    assert ledger.summary().ids == 12
    assert not list(Path(ledger.location).glob("seed-*"))


def test_a_writer_that_joins_meanwhile_makes_the_parts_void(ledger: Ledger) -> None:
    attempt(ledger, [0, 1, 2])
    end_process_of(ledger)
    with ledger.batch() as other:
        other.begin(lambda _: False, Owner.this_process())
        rows = rows_of([Message("another", START, 0, 60 * SECOND)])
        ledger.judge(rows, other.generation, 0, part=0, parts=1, clock=2**60)
    assert not attempt(ledger, [0]).done
    for name in ledger.listing().superseded_files():
        Path(ledger.location, name).unlink()
    assert len(list(Path(ledger.location).glob("seed-*"))) == 1, "only the mark of the open attempt is left"


def test_bad_input_leaves_nothing_and_an_interruption_leaves_the_parts(ledger: Ledger) -> None:
    with pytest.raises(OncebusError), attempt(ledger, [0]):
        raise OncebusError("bad input")
    assert not ledger.listing().runs
    assert not list(Path(ledger.location).glob("seed-*"))
    with pytest.raises(KeyboardInterrupt), attempt(ledger, [0]):
        raise KeyboardInterrupt
    assert attempt(ledger, []).done == {0}
