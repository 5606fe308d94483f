from __future__ import annotations

import random

import pytest

from oncebus.ledger.merging import FULL, choose_merge


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
