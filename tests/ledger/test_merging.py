from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from oncebus.detection import Rows
from oncebus.ledger import Ledger, Owner, Writer, merging, tidying
from oncebus.ledger.merging import FULL, choose_merge, choose_rewrite
from tests.histories import SECOND, START, YEAR


@pytest.mark.parametrize("shape", ["steady", "random", "waves", "empty"])
def test_runs_stay_few_and_entries_are_seldom_rewritten(shape: str) -> None:
    chance = random.Random(1)
    sizes: list[int] = []
    rewritten = total = 0
    for at in range(5000):
        size = {"steady": 1000, "random": int(10 ** chance.uniform(0, 5)), "waves": 10 ** (at // 10 % 5), "empty": 0}[
            shape
        ]
        sizes.append(size)
        total += size
        while (chosen := choose_merge(sizes)) is not None:
            merged = sum(sizes[at] for at in chosen)
            assert merged < 16 * FULL
            rewritten += merged
            sizes[chosen.start : chosen.stop] = [merged]
    assert sum(sizes) == total
    assert len(sizes) <= 64 + total // FULL
    assert rewritten <= 6 * total


def test_a_long_window_does_not_make_merges_dearer() -> None:
    """A part with 100 full runs merges what follows them no more often than an empty one."""
    sizes = [2 * FULL] * 100
    rewritten = 0
    for _ in range(3000):
        sizes.append(1000)
        while (chosen := choose_merge(sizes)) is not None:
            merged = sum(sizes[at] for at in chosen)
            rewritten += merged
            sizes[chosen.start : chosen.stop] = [merged]
    # An entry is written again once for each of the tiers 8,000, 64,000, 512,000 and 4,096,000.
    assert rewritten <= 4 * 3000 * 1000


def test_the_largest_run_that_is_mostly_forgotten_is_rewritten() -> None:
    runs = [(20_000, 5), (50_000, 9), (30_000, 10), (9_999, 1), (90_000, 11)]
    assert choose_rewrite(runs, 4) is None
    assert choose_rewrite(runs, 5) == 0
    assert choose_rewrite(runs, 10) == 1


def test_rows_dated_far_ahead_keep_nothing_but_themselves(tmp_path: Path) -> None:
    """Each batch has one row dated a year ahead and 99 that are soon forgotten. Runs of 400 entries are full."""
    small = {"fan": 4, "full": 400}
    window, batches, size = 20 * SECOND, 120, 100
    chance = np.random.default_rng(1)
    ledger = Ledger.open(tmp_path / "ledger")
    with (
        mock.patch.object(tidying, "choose_merge", lambda sizes: merging.choose_merge(sizes, **small)),
        mock.patch.object(
            tidying, "choose_rewrite", lambda runs, horizon: merging.choose_rewrite(runs, horizon, least=50)
        ),
    ):
        for batch in range(batches):
            now = START + batch * SECOND
            time = np.full(size, now)
            time[0] += YEAR
            high, low = (chance.integers(0, 2**64, size, dtype=np.uint64) for _ in range(2))
            same = np.full(size, window)
            rows = Rows(
                high, low, np.ones(size, np.bool_), time, same, same, np.arange(size), np.arange(size).__getitem__
            )
            generation = ledger.join(Writer("a" * 32, "query", Owner.this_process()), batch)
            ledger.judge(rows, generation, batch, part=0, parts=1, clock=now)
            ledger.tidy(generation, batch, part=0, parts=1)
            # The live rows are those dated ahead, those in the window, and those of batches that may be repeated.
            alive = batch + (20 + 8) * size
            held = ledger.summary()
            assert held.ids <= 4 * alive + 4 * 50
            assert held.runs <= 8 + 4 * 6
