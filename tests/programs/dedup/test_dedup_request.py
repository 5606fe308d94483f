"""How `oncebus dedup` interprets its arguments, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.programs.dedup.request import DedupRequest
from oncebus.values.durations import BadDuration


def request(window: str) -> DedupRequest:
    return DedupRequest(("in",), ("id",), "at", window, Path("out"), None, None, None, None, None, None, False)


@pytest.mark.parametrize(
    ("window", "taken"),
    [
        ("10m", "PT10M"),
        ("10 minutes", "PT10M"),
        ("PT10M", "PT10M"),
        ("00:10:00", "PT10M"),
        ("hold", "hold"),
        ("30d", "30d"),
        ("soon", "soon"),
    ],
)
def test_a_window_is_a_column_if_there_is_one_else_a_duration(window: str, taken: str) -> None:
    assert request(window).window_among(["id", "at", "hold", "30d"]) == taken


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("0s", "Window '0s' must be longer than zero."),
        ("P1Y", "Window 'P1Y' has years or months, which have no fixed length."),
        ("0.3333333s", "Window '0.3333333s' is finer than a microsecond."),
    ],
)
def test_the_error_for_an_invalid_duration_shows_the_typed_text(window: str, said: str) -> None:
    with pytest.raises(BadDuration) as raised:
        request(window).window_among(["id", "at"])
    assert str(raised.value) == said
