"""After each step of a life, every key has the verdict of the reference, and no file has a problem: see `lives`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.ledger.lives import Kind, Life
from tests.ledger.test_ledger_properties import eager, memory_folder


def live(seeds: Iterable[int], steps: int) -> Counter[str]:
    figures: Counter[str] = Counter()
    for seed in seeds:
        repeatable, fan, full = (1, 2)[seed % 2], (2, 3, 8)[seed // 5 % 3], (6, 1_000_000)[seed // 2 % 2]
        with memory_folder() as folder, eager(repeatable, fan, full):
            try:
                Life(folder, seed, figures, kind=list(Kind)[seed % 3], repeatable=repeatable).live(steps)
            except BaseException as error:
                error.add_note(f"in the life with the seed {seed}")
                raise
        figures["lives"] += 1
    return figures


@pytest.mark.slow
def test_lives() -> None:
    # The last one fails if an attempt that stalls before it reads a run may go on when the run is gone.
    figures = live([*range(18), 39], steps=20)
    # Every kind of event has happened.
    events = (
        "died",
        "held",
        "held before a read",
        "resumed",
        "drivers lost",
        "stalled for long",
        "forgets",
        "asides",
    )
    assert min(figures[name] for name in events) > 3, figures
    assert figures["drivers refused"] > 0, figures


@pytest.mark.torture
@pytest.mark.parametrize("first", range(1000, 1600, 100))
def test_many_lives(first: int) -> None:
    figures = live(range(first, first + 100), steps=40)
    print(dict(figures))
