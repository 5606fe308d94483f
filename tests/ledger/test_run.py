from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncebus.detection import NO_SEQUENCE
from oncebus.ledger.filter import filter_masks
from oncebus.ledger.run import CorruptRun, Entries, Run, encode_run

numbers = st.integers(-(2**62), 2**62)


def entries_of(rows: list[tuple[int, int, int, int, int, int]]) -> Entries:
    columns = np.array(sorted(rows), object).reshape(-1, 6).T
    high, low = (column.astype(np.uint64) for column in columns[:2])
    time, sequence, window, keep = (column.astype(np.int64) for column in columns[2:])
    return Entries.of(high, low, time, sequence, window, keep)


rows = st.tuples(
    # Few values, so that halves of keys and whole keys repeat.
    st.sampled_from([0, 1, 2**32, 2**63, 2**64 - 1]),
    st.sampled_from([0, 7, 2**64 - 1]),
    numbers,
    st.one_of(numbers, st.just(NO_SEQUENCE)),
    st.sampled_from([1, 20, 600]),
    st.sampled_from([1, 20, 600]),
)


@given(rows=st.lists(rows, max_size=30), horizon=numbers)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read(rows: list[tuple[int, int, int, int, int, int]], horizon: int) -> None:
    run = Run("name", memoryview(b"".join(encode_run(entries_of(rows), horizon))))
    run.verify()
    assert (run.size, run.horizon) == (len(rows), horizon)
    keys = sorted({row[:2] for row in rows} | {(3, 3), (0, 0), (2**64 - 1, 2**64 - 1)})
    high, low = (np.array(half, np.uint64) for half in zip(*keys, strict=True))
    found = run.recall(high, low, filter_masks(low))
    columns = (found.key, found.time, found.sequence, found.window, found.keep)
    answers = sorted(
        (keys[key] + tuple(rest)) for key, *rest in zip(*(column.tolist() for column in columns), strict=True)
    )
    assert answers == sorted(rows)


def test_sizes() -> None:
    count = 10_000
    high = np.sort(np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64))
    ones, mixed = np.ones(count, np.int64), np.arange(count) % 200
    for sequence, window, most in ((ones, ones, 33.1), (ones, mixed, 34.4), (np.full(count, NO_SEQUENCE), ones, 25.1)):
        size = sum(len(piece) for piece in encode_run(Entries.of(high, high, ones, sequence, window, window), 0))
        assert size / count <= most


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    good = b"".join(encode_run(entries_of([(1, 2, 3, 4, 20, 20), (5, 6, 7, 8, 600, 600)]), 9))
    for at in range(len(good)):
        if 56 <= at < 64:
            continue
        flipped = bytearray(good)
        flipped[at] ^= 0x10
        with pytest.raises(CorruptRun):
            Run("name", memoryview(bytes(flipped))).verify()
        with pytest.raises(CorruptRun):
            Run("name", memoryview(good[:at]))
