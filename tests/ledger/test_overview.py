"""What a ledger says about itself, and about single keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from oncebus.detection import NO_SEQUENCE, Question, Rows
from oncebus.ledger import Generation, Ledger, LedgerOverview, Memory, Sighting, Writer, overview
from oncebus.ledger import run as run_module
from oncebus.ledger.names import horizon_of
from oncebus.ledger.run import RecallFrom
from oncebus.ledger.sightings import sightings_in
from oncebus.ledger.storage import Storage
from oncebus.values.durations import DAY
from tests.histories import SECOND, START, YEAR, Batch, digest, histories
from tests.ledger.owners import HERE
from tests.ledger.test_asides import Checkpoint, batch_of_stream, open_aside
from tests.ledger.test_forgetting import accepted, rows_of
from tests.ledger.test_ledger_properties import eager, memory_folder, run_batch, started
from tests.properties import search
from tests.reference import Forget, Message, Reference

FIRST_DAY = START // DAY


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger")


@given(history=histories(endless=True))
@search(40)
def test_a_key_is_known_as_the_reference_knows_it(history: list[Batch]) -> None:
    reference = Reference()
    with memory_folder() as folder, eager(1, 3):
        ledger = Ledger.open(f"{folder}/ledger")
        for number, batch in enumerate(history):
            reference.batch(batch.messages, batch.clock)
            run_batch(ledger, started(ledger, 0), number, batch, 0)
        visible = ledger.listing().visible()
        recall = RecallFrom([ledger._run(name) for name in visible if name.size])
        reference.batch([], 0)
        for key in ("a", "b", "c", "ödeme"):
            high, low = (np.array([half], np.uint64) for half in digest(key))
            memories = recall(Question(high, low, np.array([-(2**62)]), np.array([2**62])))
            found = [
                (each.time, each.sequence, each.until)
                for each in sightings_in(memories, horizon_of(visible))
                if each.memory is Memory.REMEMBERED
            ]
            known = [message for message in reference.remembered if message.key == key]
            assert found == sorted((each.time, each.sequence, each.time + each.window) for each in known)


def test_a_key_that_is_over_or_was_forgotten_is_told_apart(ledger: Ledger) -> None:
    accepted(ledger, ["a", "b"])
    assert ledger.find("a") == [Sighting(START, None, START + 600 * SECOND, Memory.REMEMBERED)]
    assert ledger.find("never") == []
    ledger.forget(["a"])
    assert [each.memory for each in ledger.find("a")] == [Memory.FORGOTTEN]
    accepted(ledger, ["a"], START + 1)
    assert [(each.time, each.memory) for each in ledger.find("a")] == [
        (START, Memory.FORGOTTEN),
        (START + 1, Memory.REMEMBERED),
    ]
    accepted(ledger, ["other"], START + 600 * SECOND)
    assert [each.memory for each in ledger.find("b")] == [Memory.OVER]
    assert ledger.contains("b") is None


def test_a_key_that_was_new_twice_is_known_by_the_newer_one(ledger: Ledger) -> None:
    accepted(ledger, ["a"])
    accepted(ledger, ["a"], START - 600 * SECOND)
    assert len(ledger.find("a")) == 2
    found = ledger.contains("a")
    assert found is not None
    assert found.time == START
    assert ledger.contains("never") is None


def days_of(found: LedgerOverview) -> list[tuple[int, int, str]]:
    return [(day.number - FIRST_DAY, day.ids, day.reaches) for day in found.days]


def test_the_days_of_all_times(ledger: Ledger) -> None:
    """Days far from the newest time are counted together. Some times have no date at all."""
    ledger.describe_or_check(["id string"], has_secret=True)
    generation = ledger.join(Writer("aa", "query", HERE), 0)
    times = [START, START - 2 * DAY, START + 5 * DAY, -100_000 * YEAR, 100_000 * YEAR]
    for part, time in enumerate(times):
        ledger.judge(rows_of(ledger, [f"k{part}"], time), generation, 0, part=part, parts=5, clock=START)
    found = ledger.overview()
    assert days_of(found) == [
        (-overview._DAYS_BEFORE, 1, "earlier"),
        (-2, 1, ""),
        (0, 1, ""),
        (5, 1, ""),
        (overview._DAYS_AFTER, 1, "later"),
    ]
    assert (found.oldest, found.newest) == (-100_000 * YEAR, 100_000 * YEAR)
    assert found.expired == 2
    sizes = [path.stat().st_size for path in Path(ledger.location).glob("*.run")]
    assert [day.bytes for day in found.days] == sizes


def judge_many(ledger: Ledger, size: int, window: int) -> Generation:
    """Judge rows of two days, of which one in ten is of the first day."""
    random = np.random.default_rng(1)
    high, low = (random.integers(0, 2**64, size, dtype=np.uint64) for _ in range(2))
    time = np.where(np.arange(size) % 10 == 0, START, START + DAY)
    windows = np.full(size, window)
    windows[::2] += 1
    rows = Rows(
        high,
        low,
        np.ones(size, np.bool_),
        time,
        windows,
        windows,
        np.full(size, NO_SEQUENCE),
        np.arange(size).__getitem__,
        has_sequence=False,
    )
    ledger.describe_or_check(["id string"], has_secret=True)
    generation = ledger.join(Writer("aa", "query", HERE), 0)
    ledger.judge(rows, generation, 0, part=0, parts=1, clock=2**62)
    return generation


def test_only_times_and_spans_are_read_block_by_block(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_many(ledger, 200_000, 3600 * SECOND)
    monkeypatch.setattr(run_module, "BLOCK", 30_000)
    monkeypatch.setattr(overview, "BLOCK", 30_000)
    read: list[int] = []
    read_part = type(ledger._storage).read_part

    def counted(self: Storage, name: str, begin: int, end: int) -> memoryview:
        found = read_part(self, name, begin, end)
        read.append(len(found))
        return found

    monkeypatch.setattr(type(ledger._storage), "read_part", counted)
    found = ledger.overview()
    assert days_of(found) == [(0, 20_000, ""), (1, 180_000, "")]
    assert found.expired == 20_000
    assert max(read) == 30_000 * 8
    assert sum(read) < 200_000 * 10


def test_tombstones_are_counted(ledger: Ledger) -> None:
    accepted(ledger, ["a", "b", "cc"])
    assert ledger.overview().tombstones == 0
    ledger.forget(["a", "cc"])
    accepted(ledger, ["d"], START + 1)
    assert ledger.overview().tombstones == 2


def test_tombstones_among_other_entries_are_counted(ledger: Ledger) -> None:
    ledger.describe_or_check(["key string"])
    history = Batch((Message("a", START, 1, 20), Message("b", START, 2, 30)), 2**60, 1)
    writer = Writer("aa", "query", HERE)
    run_batch(ledger, writer, 0, history, 0)
    run_batch(ledger, writer, 1, Batch((Forget("a", START + 1, 3, 20), Message("c", START, 4, 20)), 2**60, 1), 0)
    assert ledger.overview().tombstones == 1


def test_who_used_it(ledger: Ledger, tmp_path: Path) -> None:
    ledger.describe_or_check(["key string"])
    found = ledger.overview()
    assert (found.main, found.last, found.written, found.days, found.parts, found.oldest) == (
        None,
        None,
        None,
        [],
        [],
        None,
    )
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    batch_of_stream(ledger, checkpoint, 0, "a")
    aside = open_aside(ledger, checkpoint, "x")
    found = ledger.overview()
    assert (found.asides, found.unclaimed.count, found.leftovers.count) == (1, 1, 0)
    aside.commit()
    found = ledger.overview()
    assert found.main is not None
    assert found.last is not None
    assert (found.main.query, found.last.is_aside, found.asides) == ("query", True, 0)
    assert found.written is not None
