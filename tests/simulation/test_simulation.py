"""Lives with fixed seeds, each with crashes; the same seed gives the same history; planted bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.life import live
from tests.simulation.mutations import MUTATIONS, Mutation, count


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_nothing_answered_is_lost_and_nothing_comes_twice(first: int) -> None:
    for seed in range(first, first + 10):
        lived = live(seed, steps=60, crashes=3)
        assert not lived.violations, f"python -m tests.simulation --seed {seed} --lives 1 --steps 60 --crashes 3"


@pytest.mark.torture
def test_long_lives_from_new_seeds(seed: int) -> None:
    for each in range(seed * 1000, seed * 1000 + 300):
        lived = live(each, steps=400, crashes=12)
        assert not lived.violations, f"python -m tests.simulation --seed {each} --lives 1: {lived.violations[:3]}"


def test_a_seed_gives_the_same_history_to_the_byte() -> None:
    assert live(7, steps=120, crashes=5).lines == live(7, steps=120, crashes=5).lines


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_the_text_that_a_planted_bug_replaces_occurs_once(mutation: Mutation) -> None:
    assert count(mutation) == 1
