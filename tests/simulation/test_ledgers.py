"""Lives of a ledger on a disk that loses power or fails, and in a bucket whose answers get lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.ledgers import live_ledger


def test_no_verdict_changes_and_no_file_has_a_problem() -> None:
    figures: Counter[str] = Counter()
    for seed in range(18):
        live_ledger(seed, 12, figures)
    for event in ("power cuts", "disk errors", "lost answers", "lost requests", "refused", "died", "resumed"):
        assert figures[event] > 0, figures


@pytest.mark.torture
def test_long_lives_from_new_seeds(seed: int) -> None:
    for each in range(seed * 1000, seed * 1000 + 300):
        live_ledger(each, 40, Counter())
