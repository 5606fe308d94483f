from __future__ import annotations

import io

from oncebus.programs.dedup.progress import Display, Lines, speed


def test_without_a_terminal_a_line_is_printed_every_ten_seconds() -> None:
    now, written = [0.0], io.StringIO()
    display = Display(Lines(written, lambda: now[0]))
    display.phase("reading the schema")
    now[0] = 9.9
    display.rows(1000)
    assert written.getvalue() == ""
    now[0] = 10.0
    display.phase("detecting")
    display.duplicates(50)
    now[0] = 20.5
    display.duplicates(1234)
    lines = written.getvalue().splitlines()
    assert lines[0].startswith("oncebus dedup: detecting, 1,000 rows, ")
    assert lines[1].startswith("oncebus dedup: detecting, 1,000 rows, 1,234 duplicates, ")
    assert len(lines) == 2


def test_the_speed_does_not_include_the_start_of_spark() -> None:
    assert speed(1000, 12.0, 2.0) == {"seconds": 12.0, "start_seconds": 10.0, "rows_per_second": 500}
    assert speed(0, 12.0, 0.0)["rows_per_second"] == 0
