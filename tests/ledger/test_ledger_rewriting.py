from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oncebus.ledger.names import Position, RunName, parse_run_names
from oncebus.ledger.rewriting import bring_back
from oncebus.ledger.run import CorruptRun, Entries, Run, encode_run
from oncebus.ledger.storage import storage_at

Times = dict[str, tuple[list[int], int]]


def write(folder: Path, batch: int, times: list[int], windows: list[int]) -> str:
    """Write a run with one key for each time, except that the last two share a key."""
    key = np.arange(len(times), dtype=np.uint64)
    key[-1] = key[-2]
    span = np.array(windows, np.int64)
    entries = Entries.of(key, key, np.array(times, np.int64), np.arange(len(times)), span, span)
    position = Position(1, batch)
    name = RunName(position, position, 0, 1, len(times), max(times), "abc")
    storage_at(folder).publish(str(name), encode_run(entries, max(times)))
    return str(name)


def found(folder: Path) -> Times:
    storage = storage_at(folder)
    result: Times = {}
    for name in parse_run_names(storage.names()):
        run = Run(str(name), storage.read(str(name)))
        run.verify()
        assert (run.horizon, run.size) == (name.horizon, name.size)
        result[str(name)] = (run.entries().time.tolist(), run.forgotten_from)
    return result


def test_future_entries_are_remembered_for_one_window_from_now(tmp_path: Path) -> None:
    old = write(tmp_path, 0, [10, 20, 30], [5, 5, 5])
    write(tmp_path, 1, [40, 1_000, 50, 2_000], [5, 7, 5, 9])
    expected = {old: ([10, 20, 30], 35), "run-1.1-1.1-0.1-4-100-abc.run": ([40, 100, 50, 100], 109)}
    assert bring_back(tmp_path, 100) == 2
    assert found(tmp_path) == expected
    assert bring_back(tmp_path, 100) == 0
    assert found(tmp_path) == expected


def test_a_run_that_was_replaced_and_not_yet_deleted_is_replaced_again(tmp_path: Path) -> None:
    name = write(tmp_path, 0, [40, 1_000, 2_000], [5, 5, 5])
    before = (tmp_path / name).read_bytes()
    bring_back(tmp_path, 100)
    (tmp_path / name).write_bytes(before)
    # The clock was set back once more.
    bring_back(tmp_path, 90)
    assert found(tmp_path) == {"run-1.0-1.0-0.1-3-90-abc.run": ([40, 90, 90], 95)}


def test_a_damaged_run_is_not_replaced(tmp_path: Path) -> None:
    name = write(tmp_path, 0, [40, 1_000], [5, 5])
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CorruptRun):
        bring_back(tmp_path, 100)
    assert [*tmp_path.glob("*.run")] == [tmp_path / name]


def test_a_missing_ledger_has_nothing_to_bring_back(tmp_path: Path) -> None:
    assert bring_back(tmp_path / "none", 100) == 0
