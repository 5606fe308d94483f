"""The broker under random use and random faults, judged by the history of what its clients were told."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from . import faults
from .checker import check
from .report import complaint, figures, summary
from .run import run

# The client for Python does not close the sockets of connections that were cut.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_KEPT = Path(os.environ.get("HISTORY_FOLDER", "/tmp"))
_SHORT = ("cut after", "kill gateway", "stop gateway", "cut before", "kill workers", "clock back", "fill disk")
_FAULTS = int(os.environ.get("HISTORY_FAULTS", "40"))


def seeds(count: int) -> list[int]:
    """The seeds that were asked for by HISTORY_SEED, else so many new ones."""
    asked = os.environ.get("HISTORY_SEED")
    if asked:
        return [int(each) for each in asked.split(",")]
    return [random.SystemRandom().randrange(10**6) for _ in range(count)]


def play(folder: Path, seed: int, planned: list[faults.Fault]) -> dict[str, int]:
    """Run, check, print; a history that is wrong is kept. The figures of one that is right."""
    print(f"HISTORY_SEED={seed}, {len(planned)} faults", flush=True)
    ran = run(folder, seed, planned)
    violations = check(ran.history)
    numbers = figures(ran, violations)
    print(summary(seed, numbers, ran.hit), flush=True)
    if violations:
        ran.path = Path(shutil.copy(ran.path, _KEPT))
        pytest.fail(complaint(ran, violations), pytrace=False)
    assert "Traceback" not in ran.said, ran.said
    return numbers


def test_a_short_history_with_a_handful_of_faults(tmp_path: Path) -> None:
    [seed] = seeds(1)
    numbers = play(tmp_path, seed, faults.plan(seed, len(_SHORT), _SHORT))
    # All of it was really done.
    assert numbers["delivered"] > 50
    assert numbers["dropped"] > 5
    assert numbers["faults"] > 3


@pytest.mark.torture
@pytest.mark.parametrize("run", range(len(seeds(5))))
def test_long_histories_with_two_hundred_faults(tmp_path: Path, run: int) -> None:
    """Forty in each of five histories, each with all kinds of faults."""
    seed = seeds(5)[run]
    play(tmp_path, seed, faults.plan(seed, _FAULTS))
