"""Tests `examples/demo.py`, which `make demo` runs: its parts, and in `make torture` all of it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "examples" / "demo.py"
DEMO: dict[str, Any] = runpy.run_path(str(PROGRAM))


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("2026-01-31T08:30:00.000000Z", "2026-01-31T08:31:01.500000Z", 61.5),
        ("2026-01-31T23:59:59.500000Z", "2026-02-01T00:00:01.000000Z", 1.5),
    ],
)
def test_the_seconds_between_two_times_of_the_record(earlier: str, later: str, seconds: float) -> None:
    assert DEMO["seconds_between"](earlier, later) == seconds


def test_the_senders_repeat_the_announced_number_of_earlier_ids() -> None:
    repeats = 0
    for sender in range(DEMO["SENDERS"]):
        known: set[str] = set()
        for identity, _ in DEMO["plan"](sender):
            repeats += identity in known
            known.add(identity)
    assert repeats == DEMO["REPEATS"]


def test_it_ends_with_throughput_and_latency(capsys: pytest.CaptureFixture[str]) -> None:
    seen = DEMO["Seen"](sent_until=[12.0, 15.0, 11.0, 10.0], received_until=30.0)
    seen.received[0] = [(number, f"m{number}", "") for number in range(9_000)]
    DEMO["show_results"](seen, 10.0, [0.02] * 98 + [0.3, 0.3])
    printed = " ".join(capsys.readouterr().out.split())
    assert "9,000 messages received, each once, in order; 0 dropped." in printed
    assert "Throughput: 2,000 messages/s sent, 450 messages/s received and completed." in printed
    assert "p50 20 ms, p99 300 ms." in printed


@pytest.mark.slow
@pytest.mark.torture
def test_the_whole_demo(tmp_path: Path) -> None:
    """It checks by itself that the right messages arrived and the others were dropped."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = " ".join(done.stdout.split())
    assert "9,000 messages received, each once, in order; 1,000 dropped." in printed
    assert printed.endswith("Oncebus has stopped.")
