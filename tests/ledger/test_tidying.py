"""Merging, rewriting and deleting change no verdict, also for batches that have several runs of one part."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from oncebus.detection import Policy, judge
from oncebus.ledger import Generation, Ledger, LedgerInUse, Owner, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import horizon_of
from oncebus.ledger.run import RecallFrom
from tests.histories import EVER, SECOND, START, rows_of
from tests.ledger.owners import HERE
from tests.ledger.test_forgetting import accepted
from tests.ledger.test_ledger_properties import eager
from tests.reference import Forget, Message

WINDOW = 3600 * SECOND


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.describe_or_check(["key string"])
    return ledger


def new_keys(ledger: Ledger, generation: Generation, batch: int, keys: Iterable[str], time: int) -> list[str]:
    """Judge rows without numbers. Return the keys of those that are new."""
    asked = list(keys)
    rows = rows_of([Message(key, time, 0, WINDOW) for key in asked])
    verdicts = ledger.judge(rows, generation, batch, part=0, parts=1, clock=2**60)
    return [key for key, is_old in zip(asked, verdicts.is_duplicate.tolist(), strict=True) if not is_old]


def batch(ledger: Ledger, *evaluations: Iterable[str], time: int = START) -> list[list[str]]:
    """Run a batch outside a query, whose source changes between its evaluations."""
    with ledger.batch() as opened:
        opened.begin(lambda _: False, Owner.this_process())
        return [new_keys(ledger, opened.generation, 0, keys, time) for keys in evaluations]


def test_two_evaluations_with_as_many_rows_of_the_same_time_both_count(ledger: Ledger) -> None:
    """Their runs have the same batch, part, size, horizon and token."""
    batch(ledger, ["a", "b"], ["c", "d"], ["a", "b"])
    assert len(ledger.listing().runs) == 2, "the third evaluation equals the first"
    assert batch(ledger, "abcde") == [["e"]]


@pytest.mark.parametrize("at", range(10))
def test_a_merge_takes_all_runs_of_a_batch_or_none(ledger: Ledger, at: int) -> None:
    """The merged run covers the whole batch. If it lacked one of the runs, the keys of that run would be lost."""
    keys = []
    for number in range(20):
        evaluations = [[f"k{number}"], [f"k{number}", "more"], ["most"]] if number == at else [[f"k{number}"]]
        batch(ledger, *evaluations)
        keys.append(f"k{number}")
    assert any(run.is_merged for run in ledger.listing().runs)
    assert batch(ledger, [*keys, "more", "most", "new"]) == [["new"]]
    assert ledger.check().problems == []


def is_remembered(location: str, key: str) -> bool:
    ledger = Ledger.open(location)
    visible = ledger.listing().visible()
    recall = RecallFrom([ledger._run(name) for name in visible if name.size])
    return bool(judge(rows_of([Message(key, START, 0, EVER)]), recall, horizon_of(visible)).is_duplicate[0])


def test_a_forgotten_key_stays_forgotten_while_files_are_deleted(tmp_path: Path) -> None:
    """A merge removes an entry with its tombstone. The rest expires, so the old runs and the merged one go together."""
    remembered: list[bool] = []

    class Watched(LocalStorage):
        def delete(self, names: Iterable[str]) -> None:
            for name in names:
                super().delete([name])
                remembered.append(is_remembered(self.location, "forgotten"))

    history = [
        [Message("forgotten", START, 0, EVER), Message("short", START, 0, SECOND)],
        [Forget("forgotten", START + 1, 0, EVER), Message("brief", START + 1, 0, SECOND)],
        [Message("later", START + 60 * SECOND, 0, EVER)],
        [Message("last", START + 61 * SECOND, 0, EVER)],
    ]
    # Several times: the order of a set of names is a matter of chance.
    for life in range(10):
        ledger = Ledger(Watched(str(tmp_path / str(life))))
        writer = Writer(f"{life:032x}", "query", HERE)
        with eager(1, 2):
            for number, messages in enumerate(history):
                generation = ledger.join(writer, number)
                ledger.judge(rows_of(messages), generation, number, part=0, parts=1, clock=2**60)
                ledger.tidy(generation, number, part=0, parts=1)
    assert len(remembered) >= 20
    assert not any(remembered)


def test_a_repeated_forget_writes_the_same_run_after_a_merge(ledger: Ledger) -> None:
    """Its tombstones come in the order in which runs are searched, which a merge changes."""
    generation = ledger.join(Writer("aa", "query", HERE), 0)
    for number in range(6):
        rows, parts = rows_of([Message("key", START, 9 - number, WINDOW)]), 1 + number % 2
        ledger.judge(rows, generation, number, part=0, parts=parts, clock=2**60, policy=Policy(extends=True))
    forget = rows_of([Forget("key", START, 10, WINDOW)])
    with eager(1, 2):
        for _ in range(4):
            ledger.judge(forget, generation, 6, part=0, parts=1, clock=2**60)
            ledger.tidy(generation, 6, part=0, parts=1)
    assert any(run.is_merged for run in ledger.listing().runs)
    assert [run.last.batch for run in ledger.listing().runs].count(6) == 1


def test_merges_that_overlap_lose_no_key(ledger: Ledger) -> None:
    """Two processes have merged different runs of one part: a task that Spark gave up went on beside its successor."""
    generation = ledger.join(Writer("aa", "query", HERE), 0)
    keys = [f"k{number}" for number in range(10)]
    for number, key in enumerate(keys):
        new_keys(ledger, generation, number, [key], START)
    visible = ledger.listing().visible()
    for chosen in (visible[:5], visible[3:8]):
        ledger._merge(chosen, "bb", START)
    assert [problem.file[:12] for problem in ledger.check().problems] == ["run-1.3-1.7-"]
    with eager(1, 2):
        for number in range(10, 18):
            assert new_keys(ledger, generation, number, [*keys, f"k{number}"], START) == [f"k{number}"]
            keys.append(f"k{number}")
            ledger.tidy(generation, number, part=0, parts=1)
    assert ledger.check().problems == [], "the next merges have put them together"
    assert len(ledger.listing().runs) < 10


def test_the_next_batch_deletes_what_a_dead_one_left(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "batches")
    accepted(ledger, ["a", "bb"])
    dead = ledger.batch()
    dead.begin(lambda _: False, HERE)
    ledger.judge(rows_of([Message("x", START, 1, WINDOW)]), dead.generation, 0, part=1, parts=2, clock=2**62)
    unfinished = Path(ledger.location, ".tmp-old")
    unfinished.write_bytes(b"half a run")
    os.utime(unfinished, (0, 0))
    assert (ledger.overview().unclaimed.count, ledger.overview().leftovers.count) == (1, 1)
    accepted(ledger, ["c", "dd"])
    assert not unfinished.exists()
    found = ledger.check()
    assert (found.notes, found.leftovers) == ([], [])
    # If the batch is alive after all, it loses no keys without saying so.
    with pytest.raises(LedgerInUse, match="Another writer wrote to ledger"):
        dead.commit()
