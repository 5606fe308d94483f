from __future__ import annotations

import pytest

from oncebus.doctor.clocks import FAILS_AT, WARNS_ABOVE, Offset, clock_finding
from oncebus.doctor.findings import Status, ok
from oncebus.ledger.generations import SILENT_SECONDS


def test_the_limits_follow_from_when_a_silent_writer_counts_as_ended() -> None:
    assert FAILS_AT == SILENT_SECONDS
    assert WARNS_ABOVE < FAILS_AT / 2


def test_a_measurement_bounds_the_offset() -> None:
    """The other clock is 100 s ahead. It was read between 10 and 12 on ours."""
    for moment in (10.0, 10.7, 12.0):
        offset = Offset.measure(10.0, moment + 100.0, 12.0)
        assert offset.low <= 100.0 <= offset.high
        assert offset.high - offset.low == pytest.approx(2.0)


def test_times_in_whole_seconds_widen_the_bounds() -> None:
    # At 10.9 on both clocks, the other reports 10.
    offset = Offset.measure(10.8, 10.0, 11.0, resolution=1.0)
    assert offset.low <= 0.0 <= offset.high
    assert offset.least == 0.0


def test_a_second_measurement_narrows_the_bounds() -> None:
    assert Offset(-5.0, 1.0).and_also(Offset(-0.1, 3.0)) == Offset(-0.1, 1.0)
    # A clock that was set in between: the later measurement counts.
    assert Offset(-1.0, 1.0).and_also(Offset(9.0, 10.0)) == Offset(9.0, 10.0)


def test_distances() -> None:
    assert (Offset(-1.0, 3.0).least, Offset(-1.0, 3.0).most) == (0.0, 3.0)
    assert (Offset(-9.0, -7.0).least, Offset(-9.0, -7.0).most) == (7.0, 9.0)
    assert str(Offset(7.0, 9.0)) == "+8.0 ± 1.0 s"


@pytest.mark.parametrize(
    ("offset", "status"),
    [
        (Offset(-0.2, 0.3), Status.OK),
        (Offset(WARNS_ABOVE - 0.2, WARNS_ABOVE - 0.1), Status.OK),
        (Offset(WARNS_ABOVE + 0.1, WARNS_ABOVE + 0.2), Status.WARNING),
        (Offset(-WARNS_ABOVE - 0.2, -WARNS_ABOVE - 0.1), Status.WARNING),
        (Offset(FAILS_AT - 1.0, FAILS_AT + 1.0), Status.WARNING),
        (Offset(FAILS_AT, FAILS_AT + 1.0), Status.FAILED),
        (Offset(-FAILS_AT - 1.0, -FAILS_AT), Status.FAILED),
        # Perhaps the clocks agree, but the answer took too long to tell.
        (Offset(-WARNS_ABOVE - 1.0, 1.0), Status.WARNING),
    ],
)
def test_the_worst_clock_decides(offset: Offset, status: Status) -> None:
    found = clock_finding("clocks", {"'one'": Offset(-0.1, 0.1), "'two'": offset}, "this machine")
    assert found.status is status
    assert status is Status.OK or "'two'" in found.found


def test_texts() -> None:
    good = {"'one'": Offset(-0.14, 0.2), "'two'": Offset(-0.3, 0.0)}
    assert clock_finding("clocks", good, "this machine") == ok("clocks", "within 0.3 s of this machine")
    bad = clock_finding("clocks", {"'one'": Offset(-121.0, -119.0)}, "this machine")
    assert bad.text == (
        "the clock of 'one' is -120.0 ± 1.0 s from that of this machine. Synchronise the clocks (NTP, chrony): a "
        "running writer counts as ended after 60 s of silence."
    )
    slow = clock_finding("clocks", {"'one'": Offset(-8.0, 1.0)}, "this machine")
    assert slow.advice == "Run again while the cluster is idle."
