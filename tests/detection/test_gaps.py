"""The figures of gaps between repeats, and how people see them."""

from __future__ import annotations

from oncebus.detection.gaps import SHARES, STEPS, Gaps
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND


def test_the_quantiles_are_gaps_within_which_that_share_came() -> None:
    gaps = Gaps.of([at * SECOND for at in range(1, 10_001)])
    assert gaps.quantiles == tuple(round(share * 10_000) * SECOND for share in SHARES)
    assert gaps.largest == 10_000 * SECOND
    assert sum(gaps.counts) == gaps.repeats == 10_000
    assert gaps.counts[:4] == (0, 9, 50, 540)


def test_a_gap_at_the_end_of_a_class_is_in_the_next_one() -> None:
    for at, end in enumerate(STEPS):
        assert Gaps.of([end - 1]).counts[at] == 1
        assert Gaps.of([end]).counts[at + 1] == 1


def test_one_line_tells_which_window_to_take() -> None:
    gaps = Gaps.of([1 * SECOND] * 998 + [4 * MINUTE + 10 * SECOND, 2 * HOUR])
    assert str(gaps) == "1,000 repeats: 99.9 % came within 4 min 10 s, the latest after 2 h"
    assert gaps.table()[-1] == ("all", "2 h", "")
    assert [row[:2] for row in gaps.picture()] == [
        ("1 s to 10 s", 998),
        ("10 s to 1 min", 0),
        ("1 min to 10 min", 1),
        ("10 min to 1 h", 0),
        ("1 h to 6 h", 1),
    ]
    assert [len(bar) for *_, bar in gaps.picture()] == [30, 0, 1, 0, 1]
    assert "4 min 10 s" in gaps._repr_html_()


def test_nothing_repeats() -> None:
    gaps = Gaps.of([])
    assert str(gaps) == "no repeats"
    assert gaps.table() == []
    assert gaps.picture() == []
    assert gaps.to_json()["within_seconds"] is None
    assert gaps._repr_html_().startswith("<p>no repeats</p>")


def test_one_repeat() -> None:
    assert str(Gaps.of([3 * DAY])) == "1 repeat: 99.9 % came within 3 d, the latest after 3 d"
