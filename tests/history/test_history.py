"""The broker under random use and random faults, judged by the history of what its clients were told."""

from __future__ import annotations

import gc
import os
import random
import shutil
from pathlib import Path

import pytest

from .checker import check
from .report import complaint, figures, summary
from .run import run

# The client for Python does not close the sockets of connections that were cut.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_KEPT = Path(os.environ.get("HISTORY_FOLDER", "/tmp"))
_SHORT = "cut after,kill gateway,stop gateway,cut before,kill workers,clock back,fill disk"


def play(folder: Path, asked: str) -> dict[str, int]:
    """Run, check, print; a history that is wrong is kept. The figures of one that is right."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"HISTORY_SEED={seed} HISTORY_FAULTS='{asked}'", flush=True)
    try:
        ran = run(folder, seed, asked)
    except Exception as error:
        for left in folder.glob("history-*.jsonl"):
            error.add_note(f"The history up to there: {shutil.copy(left, _KEPT)}")
        raise
    finally:
        # Here, where its warnings are ignored: the next test would be blamed for the client's sockets.
        gc.collect()
    violations = check(ran.history)
    numbers = figures(ran, violations)
    print(summary(seed, numbers, ran.hit), flush=True)
    if violations:
        ran.path = Path(shutil.copy(ran.path, _KEPT))
        pytest.fail(complaint(ran, violations), pytrace=False)
    assert "Traceback" not in ran.said, ran.said
    return numbers


def test_a_short_history_with_a_handful_of_faults(tmp_path: Path) -> None:
    numbers = play(tmp_path, _SHORT)
    # All of it was really done.
    assert numbers["delivered"] > 50
    assert numbers["dropped"] > 5
    assert numbers["faults"] > 3


@pytest.mark.torture
@pytest.mark.parametrize("history", range(6))
def test_long_histories_with_two_hundred_faults(tmp_path: Path, history: int) -> None:
    """Forty in each of six histories, each with all kinds of faults; some meet nothing that they could disturb."""
    numbers = play(tmp_path, "40")
    assert numbers["faults"] > 30
