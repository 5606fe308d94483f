from __future__ import annotations

import pytest

from oncebus.durations import HOUR, MINUTE, SECOND, BadDuration
from oncebus.entities import NO_LIMIT
from oncebus.entities.timespans import FORMS, duration_in


@pytest.mark.parametrize(
    ("typed", "length"),
    [
        ("90s", 90 * SECOND),
        (" 1h30m ", 90 * MINUTE),
        ("PT2H", 2 * HOUR),
        ("02:00:00", 2 * HOUR),
        ("1.00:00", 24 * HOUR),
        ("2 hours", 2 * HOUR),
        # .NET's tenths of a microsecond are dropped, as by the broker.
        ("PT0.3333333S", 333_333),
        ("00:00:00.3333333", 333_333),
        ("P10675199DT2H48M5.4775807S", NO_LIMIT),
    ],
)
def test_forms(typed: str, length: int) -> None:
    assert duration_in(typed, "lateness") == length


@pytest.mark.parametrize("typed", ["", "soon", "10", "10x", "PT", "1:2:3:4", "24:00:00", "10ſ", "PT10ſ"])
def test_what_is_no_duration_is_told_with_all_forms(typed: str) -> None:
    with pytest.raises(BadDuration) as raised:
        duration_in(typed, "lateness")
    assert str(raised.value) == f"Lateness '{typed}' is not a duration. {FORMS}"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("P1Y", "has years or months, which have no fixed length."),
        ("1 month", "has months, which have no fixed length."),
        ("0.3333333s", "is finer than a microsecond."),
        ("0.3333333 seconds", "is finer than a microsecond."),
    ],
)
def test_what_is_known_of_a_duration_that_will_not_do_is_said(typed: str, why: str) -> None:
    with pytest.raises(BadDuration) as raised:
        duration_in(typed, "lateness")
    assert str(raised.value) == f"Lateness '{typed}' {why}"
