from __future__ import annotations

from datetime import timedelta

import pytest

from oncebus.values.durations import (
    DAY,
    HOUR,
    LONGEST,
    MINUTE,
    SECOND,
    BadDuration,
    checked_duration,
    parse_duration,
    spelt_out,
)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 minutes", 10 * MINUTE),
        ("1 minute", MINUTE),
        ("INTERVAL 1 day 2 hours", DAY + 2 * HOUR),
        ("1.5 seconds", 3 * SECOND // 2),
        ("-1 hour 30 minutes", -30 * MINUTE),
        ("7 DAYS", 7 * DAY),
        ("20 seconds 1 microsecond", 20 * SECOND + 1),
        ("PT10M", 10 * MINUTE),
        ("pt20s", 20 * SECOND),
        ("P7D", 7 * DAY),
        ("P1DT2H3M4.000005S", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("P2W", 14 * DAY),
        ("-PT1S", -SECOND),
        (timedelta(minutes=10, microseconds=1), 10 * MINUTE + 1),
        (timedelta(seconds=-1), -SECOND),
    ],
)
def test_valid_durations_are_parsed(text: str | timedelta, microseconds: int) -> None:
    assert parse_duration(text, "window") == microseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Window '' is not a duration. Write it like '10 minutes' or 'PT10M'."),
        ("P", "Window 'P' is not a duration."),
        ("PT", "Window 'PT' is not a duration."),
        ("P1DT", "Window 'P1DT' is not a duration."),
        ("PT1M1H", "Window 'PT1M1H' is not a duration."),
        ("10", "Window '10' is not a duration."),
        ("10m", "Window '10m' is not a duration."),
        ("PT10ſ", "Window 'PT10ſ' is not a duration."),
        ("ten minutes", "Window 'ten minutes' is not a duration."),
        ("10 minutes and", "Window '10 minutes and' is not a duration."),
        ("1 year", "Window '1 year' has years, which have no fixed length."),
        ("P1M", "Window 'P1M' has years or months, which have no fixed length."),
        ("0.0000001 seconds", "Window '0.0000001 seconds' is finer than a microsecond."),
    ],
)
def test_invalid_durations_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadDuration) as raised:
        parse_duration(text, "window")
    assert str(raised.value).startswith(message)


def test_an_error_can_show_the_typed_text_instead_of_the_parsed_one() -> None:
    with pytest.raises(BadDuration, match="Window '1fortnight' is not a duration"):
        parse_duration("1 fortnight", "window", "1fortnight")


@pytest.mark.parametrize(
    ("typed", "spelt"),
    [
        ("5s", "5 seconds"),
        ("10m", "10 minutes"),
        (" 2H ", "2 hours"),
        ("7d", "7 days"),
        ("1h30m", "1 hours 30 minutes"),
        ("1.5s", "1.5 seconds"),
    ],
)
def test_short_forms_are_expanded(typed: str, spelt: str) -> None:
    assert spelt_out(typed) == spelt
    parse_duration(spelt, "window")


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "10x", "1y", "10m and", "-10m", "PT10M", "10 minutes", "10ſ"])
def test_any_other_text_stays_unchanged(text: str) -> None:
    assert spelt_out(text) == text


def test_durations_out_of_range_are_refused() -> None:
    assert checked_duration(LONGEST, "x", "window") == LONGEST
    with pytest.raises(BadDuration, match="Window 'x' is longer than 36500 days"):
        checked_duration(LONGEST + 1, "x", "window")
