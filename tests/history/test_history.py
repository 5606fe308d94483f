"""The broker under random use and random faults. The checker examines the history that its clients recorded."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest

from .checker import check
from .report import complaint, figures, summary
from .run import run

# The Python client does not close the sockets of broken connections.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_KEPT = Path(os.environ.get("HISTORY_FOLDER", "/tmp"))
_SHORT = "cut after,kill gateway,stop gateway,cut before,vanish,kill workers,clock back,fill disk"


def play(folder: Path, seed: int, asked: str) -> dict[str, int]:
    """Run, check and print a history. Return its figures, or keep its file and fail if there are violations."""
    print(f"HISTORY_SEED={seed} HISTORY_FAULTS='{asked}'", flush=True)
    try:
        ran = run(folder, seed, asked)
    except Exception as error:
        for left in folder.glob("history-*.jsonl"):
            error.add_note(f"The history up to there: {shutil.copy(left, _KEPT)}")
        raise
    finally:
        # Collect garbage here, where its warnings are ignored. Otherwise the next test gets blamed for the client's
        # sockets.
        gc.collect()
    violations = check(ran.history)
    numbers = figures(ran, violations)
    print(summary(seed, numbers, ran.hit), flush=True)
    if violations:
        ran.path = Path(shutil.copy(ran.path, _KEPT))
        pytest.fail(complaint(ran, violations), pytrace=False)
    assert "Traceback" not in ran.output, ran.output
    return numbers


def test_a_short_history_with_a_handful_of_faults(tmp_path: Path, seed: int) -> None:
    numbers = play(tmp_path, seed, _SHORT)
    # Make sure that deliveries, drops and faults really happened.
    assert numbers["delivered"] > 50
    assert numbers["dropped"] > 5
    assert numbers["transactions"] > 3
    assert numbers["faults"] > 3


@pytest.mark.torture
@pytest.mark.parametrize("history", range(6))
def test_long_histories_with_two_hundred_faults(tmp_path: Path, seed: int, history: int) -> None:
    """Six histories with forty faults of all kinds each. Some faults hit nothing."""
    numbers = play(tmp_path, seed + history, "40")
    assert numbers["faults"] > 30
