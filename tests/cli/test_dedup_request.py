"""What `oncebus dedup` makes of its command line, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.cli.dedup import Request


def request(window: str) -> Request:
    return Request(("in",), ("id",), "at", window, Path("out"), None, None, None, None, None, None, False)


@pytest.mark.parametrize(
    ("window", "taken"),
    [("10m", "10 minutes"), ("10 minutes", "10 minutes"), ("PT10M", "PT10M"), ("hold", "hold"), ("30d", "30d")],
)
def test_a_window_is_a_column_where_there_is_one_and_else_a_duration(window: str, taken: str) -> None:
    assert request(window).window_among(["id", "at", "hold", "30d"]) == taken
