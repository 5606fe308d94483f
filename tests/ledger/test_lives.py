"""After each step of a life, every key has the verdict of the reference, and no file has a problem: see `lives`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.ledger.lives import live


@pytest.mark.slow
def test_lives() -> None:
    # The last one fails if an attempt that stalls before it reads a run may go on when the run is gone.
    figures: Counter[str] = Counter()
    live([*range(18), 39], 20, figures)
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
    figures: Counter[str] = Counter()
    live(range(first, first + 100), 40, figures)
    print(dict(figures))
