"""`examples/demo.py`, as far as it goes without a broker. `make demo` runs the whole of it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

DEMO: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "demo.py"))


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("2026-01-31T08:30:00.000000Z", "2026-01-31T08:31:01.500000Z", 61.5),
        ("2026-01-31T23:59:59.500000Z", "2026-02-01T00:00:01.000000Z", 1.5),
    ],
)
def test_times_of_the_record_are_as_far_apart_as_their_dates_say(earlier: str, later: str, seconds: float) -> None:
    assert DEMO["seconds_between"](earlier, later) == seconds
