from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.entities import NO_LIMIT, BadRequest, dotnet_timespan, iso_timespan, parse_timespan
from oncebus.model.entities.timespans import in_words
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND

BELOW_NO_LIMIT = 10675199 * DAY - 1


@pytest.mark.parametrize(
    ("microseconds", "iso", "dotnet"),
    [
        (0, "PT0S", "00:00:00"),
        (20 * SECOND, "PT20S", "00:00:20"),
        (MINUTE, "PT1M", "00:01:00"),
        (10 * MINUTE, "PT10M", "00:10:00"),
        (7 * DAY, "P7D", "7.00:00:00"),
        (25 * DAY, "P25D", "25.00:00:00"),
        (DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5, "P1DT2H3M4.000005S", "1.02:03:04.0000050"),
        (SECOND // 2, "PT0.5S", "00:00:00.5000000"),
        (-90 * SECOND, "-PT1M30S", "-00:01:30"),
        (NO_LIMIT, "P10675199DT2H48M5.4775807S", "10675199.02:48:05.4775807"),
    ],
)
def test_both_forms_are_written_and_read(microseconds: int, iso: str, dotnet: str) -> None:
    assert iso_timespan(microseconds) == iso
    assert dotnet_timespan(microseconds) == dotnet
    assert parse_timespan(iso, "LockDuration") == microseconds
    assert parse_timespan(dotnet, "LockDuration") == microseconds


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        (" PT1M ", MINUTE),
        ("pt1m", MINUTE),
        ("P1W", 7 * DAY),
        ("PT90S", 90 * SECOND),
        ("PT0.1234567S", 123456),
        ("0:5", 5 * MINUTE),
        ("00:00:00.1234567", 123456),
        ("00:00:01.5", SECOND + SECOND // 2),
        ("P10675199DT2H48M5.477539S", NO_LIMIT),
        ("P10675199DT2H48M5.4775808S", NO_LIMIT),
        ("P99999999D", NO_LIMIT),
        ("99999999.00:00:00", NO_LIMIT),
    ],
)
def test_other_ways_of_writing_are_read(text: str, microseconds: int) -> None:
    assert parse_timespan(text, "LockDuration") == microseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1M", "P1Y", "10 minutes", "300", "24:00:00", "00:60:00", "00:00:60", "1:2:3:4", "x", "-"),
        *("PT" + "9" * 5000 + "S", "-P99999999D"),
    ],
)
def test_a_text_that_is_not_a_duration_is_a_bad_request_that_names_the_property(text: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_timespan(text, "LockDuration")
    assert str(raised.value) == (
        f"The value '{text}' of the property 'LockDuration' is not a duration. Write it like 'PT10M' or '00:10:00'."
    )


@given(st.integers(-BELOW_NO_LIMIT, BELOW_NO_LIMIT))
def test_every_duration_comes_back_from_both_forms(microseconds: int) -> None:
    assert parse_timespan(iso_timespan(microseconds), "x") == microseconds
    assert parse_timespan(dotnet_timespan(microseconds), "x") == microseconds


@given(st.text(alphabet="P-T.:0123456789DHMS", max_size=20))
def test_any_text_is_either_parsed_or_refused(text: str) -> None:
    try:
        microseconds = parse_timespan(text, "x")
    except BadRequest:
        return
    assert parse_timespan(iso_timespan(microseconds), "x") == microseconds


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (0, "0 ms"),
        (1_500, "1.5 ms"),
        (20_000_000, "20 seconds"),
        (90_061_000_000, "1 day 1 hour 1 minute 1 second"),
        (NO_LIMIT, "no limit"),
    ],
)
def test_durations_in_words(microseconds: int, words: str) -> None:
    assert in_words(microseconds) == words
