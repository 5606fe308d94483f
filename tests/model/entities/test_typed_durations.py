from __future__ import annotations

import pytest

from oncebus.model.entities import NO_LIMIT
from oncebus.model.entities.timespans import FORMS, duration_in
from oncebus.values.durations import HOUR, MINUTE, SECOND, BadDuration


@pytest.mark.parametrize(
    ("typed", "length"),
    [
        ("90s", 90 * SECOND),
        (" 1h30m ", 90 * MINUTE),
        ("PT2H", 2 * HOUR),
        ("02:00:00", 2 * HOUR),
        ("1.00:00", 24 * HOUR),
        ("2 hours", 2 * HOUR),
        # Tenths of a microsecond, which .NET has, are dropped, as in the broker.
        ("PT0.3333333S", 333_333),
        ("00:00:00.3333333", 333_333),
        ("P10675199DT2H48M5.4775807S", NO_LIMIT),
    ],
)
def test_all_forms_are_parsed(typed: str, length: int) -> None:
    assert duration_in(typed, "lateness") == length


@pytest.mark.parametrize("typed", ["", "soon", "10", "10x", "PT", "1:2:3:4", "24:00:00", "10ſ", "PT10ſ"])
def test_the_error_for_a_text_that_is_not_a_duration_lists_all_forms(typed: str) -> None:
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
def test_the_error_for_an_unusable_duration_says_why(typed: str, why: str) -> None:
    with pytest.raises(BadDuration) as raised:
        duration_in(typed, "lateness")
    assert str(raised.value) == f"Lateness '{typed}' {why}"
