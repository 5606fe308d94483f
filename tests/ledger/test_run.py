from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Question
from oncebus.ledger import Ledger, Owner, Writer
from oncebus.ledger import run as run_module
from oncebus.ledger.filter import filter_masks
from oncebus.ledger.merging import merge
from oncebus.ledger.run import CorruptRun, Entries, RecallFrom, Run, encode_run
from tests.histories import SECOND, START, rows_of
from tests.properties import search
from tests.reference import Forget, Message

numbers = st.integers(-(2**62), 2**62)


def entries_of(rows: list[tuple[int, int, int, int, int, int]]) -> Entries:
    columns = np.array(sorted(rows), object).reshape(-1, 6).T
    high, low = (column.astype(np.uint64) for column in columns[:2])
    time, sequence, window, keep = (column.astype(np.int64) for column in columns[2:])
    return Entries.of(high, low, time, sequence, window, keep)


rows = st.tuples(
    # Use few values, so that halves of keys and whole keys repeat.
    st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1]),
    st.sampled_from([0, 7, 2**64 - 1]),
    numbers,
    st.one_of(numbers, st.just(NO_SEQUENCE)),
    st.sampled_from([1, 20, 600]),
    st.sampled_from([1, 20, 600]),
)


times = st.sampled_from([-(2**62), -1000, 0, 1, 2, 3, 5, 8, 1000, 2**62])
near_rows = st.tuples(
    st.sampled_from([1, 2]), st.sampled_from([1, 7]), times, st.just(NO_SEQUENCE), st.just(1), st.just(1)
)


@given(
    rows=st.lists(st.one_of(rows, near_rows), max_size=30),
    horizon=numbers,
    asked=st.tuples(times, times).map(sorted),
)
@search(400)
def test_a_run_returns_the_entries_that_were_written(
    rows: list[tuple[int, int, int, int, int, int]], horizon: int, asked: list[int]
) -> None:
    run = Run("name", memoryview(b"".join(encode_run(entries_of(rows), horizon))))
    run.verify()
    assert (run.size, run.horizon) == (len(rows), horizon)
    keys = sorted({row[:2] for row in rows} | {(3, 3), (0, 0), (2**64 - 1, 2**64 - 1)})
    high, low = (np.array(half, np.uint64) for half in zip(*keys, strict=True))
    earliest, latest = asked
    question = Question(high, low, np.full(len(keys), earliest), np.full(len(keys), latest))
    found = run.recall(question, filter_masks(low))
    columns = (found.key, found.time, found.sequence, found.window, found.keep)
    answers = sorted(
        (keys[key] + tuple(rest)) for key, *rest in zip(*(column.tolist() for column in columns), strict=True)
    )
    # A key with a single entry may return it whatever its time. No entry comes twice or is made up.
    assert [answer for answer in answers if earliest <= answer[2] <= latest] == sorted(
        row for row in rows if earliest <= row[2] <= latest
    )
    assert not Counter(answers) - Counter(rows)
    assert run.forgotten_from == max((row[2] + row[5] for row in rows), default=NO_HORIZON)
    ends = sorted(row[2] + row[5] for row in rows)
    if rows:
        assert sum(end <= run.mostly_forgotten_from for end in ends) * 4 >= 3 * len(rows)
        assert sum(end < run.mostly_forgotten_from for end in ends) * 4 < 3 * len(rows)


@given(st.lists(st.lists(rows, max_size=12), max_size=4), st.integers(0, 2**63), st.integers(0, 100))
@search(200)
def test_few_keys_and_many_find_the_same(
    runs: list[list[tuple[int, int, int, int, int, int]]], other: int, others: int
) -> None:
    made = [Run("name", memoryview(b"".join(encode_run(entries_of(each), 0)))) for each in runs]
    keys = sorted({row[:2] for each in runs for row in each} | {(other + at * 2**40, at) for at in range(others)})
    high, low = (np.array([key[half] for key in keys], np.uint64) for half in range(2))
    anything = np.full(len(keys), 2**62)
    question = Question(high, low, -anything, anything)
    found = []
    for few in (0, 1000):
        with mock.patch.object(run_module, "FEW_KEYS", few):
            memories = RecallFrom(made)(question)
        columns = (memories.key, memories.time, memories.sequence, memories.window, memories.keep)
        found.append([column.tolist() for column in columns])
    assert found[0] == found[1]


def test_one_key_with_very_many_entries_is_searched() -> None:
    """One key has an entry for each second of a day. Only the neighbours of the row are read."""
    count = 86_400
    key, time = np.full(count, 7, np.uint64), np.arange(count) * 1_000_000
    window, keep = np.full(count, 1_000_000), np.full(count, 86_400_000_000)
    run = Run("name", memoryview(b"".join(encode_run(Entries.of(key, key, time, time, window, keep), 0))))
    at = np.array([40_000_500_000])
    found = run.recall(Question(key[:1], key[:1], at - 999_999, at + 999_999), filter_masks(key[:1]))
    assert found.time.tolist() == [40_000_000_000, 40_001_000_000]


def test_sizes() -> None:
    count = 10_000
    high = np.sort(np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64))
    ones, mixed = np.ones(count, np.int64), np.arange(count) % 200
    for sequence, window, most in ((ones, ones, 33.1), (ones, mixed, 34.4), (np.full(count, NO_SEQUENCE), ones, 25.1)):
        size = sum(len(piece) for piece in encode_run(Entries.of(high, high, ones, sequence, window, window), 0))
        assert size / count <= most


def test_every_flipped_bit_and_every_truncation_is_detected() -> None:
    good = b"".join(encode_run(entries_of([(1, 2, 3, 4, 20, 20), (5, 6, 7, 8, 600, 600)]), 9))
    for at in range(len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 0x10
        with pytest.raises(CorruptRun):
            Run("name", memoryview(bytes(flipped))).verify()
        with pytest.raises(CorruptRun):
            Run("name", memoryview(good[:at]))


LOWEST = -(2**63)


def test_the_lowest_number_is_a_number_if_all_entries_have_one() -> None:
    one = np.ones(1, np.int64)
    key, question = one.astype(np.uint64), Question(one.astype(np.uint64), one.astype(np.uint64), one, one)

    def entries(*, is_numbered: bool) -> Entries:
        return Entries.of(key, key, one, np.full(1, LOWEST), one, one, is_numbered=is_numbered)

    def has_sequence(entries: Entries) -> list[bool]:
        run = Run("name", memoryview(b"".join(encode_run(entries, 0))))
        assert run.entries().is_numbered == entries.is_numbered
        found = run.recall(question, filter_masks(question.low))
        assert set(found.sequence.tolist()) == {LOWEST}
        return found.has_sequence.tolist()  # type: ignore[no-any-return]

    with_number, without = entries(is_numbered=True), entries(is_numbered=False)
    assert has_sequence(with_number) == [True]
    assert has_sequence(without) == [False]
    assert has_sequence(merge([with_number, with_number], NO_HORIZON)) == [True, True]
    assert has_sequence(merge([with_number, without], NO_HORIZON)) == [False, False]


def test_the_lowest_number_names_an_original(tmp_path: Path) -> None:
    """In its own batch, in later ones, and after a forget of another key."""
    ledger = Ledger.open(tmp_path)
    originals = [Message("a", START, LOWEST, SECOND), Message("b", START, 5, SECOND)]
    batches: list[list[Message]] = [
        [*originals, Message("a", START + 1, 1, SECOND)],
        [Forget("b", START + 2, 2, SECOND)],
        [Message("a", START + 3, 3, SECOND)],
    ]
    for number, batch in enumerate(batches):
        generation = ledger.join(Writer("aa", "query", Owner.this_process()), number)
        verdicts = ledger.judge(rows_of(batch), generation, number, part=0, parts=1, clock=2**62)
        assert verdicts.is_duplicate[-1], number
        assert verdicts.has_original_sequence[-1], number
        assert verdicts.original_sequence[-1] == (5 if number == 1 else LOWEST), number
