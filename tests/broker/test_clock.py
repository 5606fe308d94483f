"""A clock that is wrong."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.broker.clock import (
    Clock,
    ClockLeapt,
    time_passed,
    wall_time,
)
from oncebus.engine.inbox.marks import marks_of
from oncebus.engine.store import SessionLockLost
from oncebus.engine.stored_times import LONG_PAUSE, MOST_LEAP, TimesAhead, check_stored_times
from oncebus.model.entities.limits import LONGEST_LOCK
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DAY, HOUR, SECOND, Scene, message, play, scene

START = FakeTime().now


def test_stamps_stand_still_until_a_clock_that_was_set_back_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    time = FakeTime()
    clock = time.clock()
    assert clock.stamp() == START
    time.set_wrong(-3600)
    time.advance(1800)
    assert [clock.stamp(), clock.stamp()] == [START, START]
    assert [record.message for record in caplog.records] == [
        "The clock is 1800.0 s behind the newest message, whose time all new messages get"
    ]
    time.advance(1801)
    assert clock.stamp() == START + SECOND


def test_a_clock_that_was_set_back_may_be_set_right_again() -> None:
    time = FakeTime()
    clock = time.clock()
    clock.stamp()
    time.set_wrong(-6 * 3600)
    time.advance(100)
    assert clock.stamp() == START
    time.set_wrong(0)
    assert clock.stamp() == START + 100 * SECOND


def test_a_leap_forward_is_refused_until_the_clock_is_right() -> None:
    time = FakeTime()
    clock = time.clock()
    time.set_wrong(MOST_LEAP / SECOND)
    assert clock.stamp() == START + MOST_LEAP
    time.set_wrong(2 * MOST_LEAP / SECOND + 1)
    for _ in range(2):
        with pytest.raises(ClockLeapt, match="leapt 601 s forward"):
            clock.stamp()
        # Locks and expiry continue as if nothing had happened.
        assert clock.now() == time.now + MOST_LEAP
        time.advance(1)
    time.set_wrong(MOST_LEAP / SECOND)
    assert clock.stamp() == time.now + MOST_LEAP


def test_waits_continue_while_the_clock_is_set_back() -> None:
    time = FakeTime()
    clock = time.clock()
    clock.stamp()
    time.set_wrong(-3600)
    for minutes in range(1, 600):
        time.advance(60)
        assert 56 * minutes * SECOND < clock.steady() - START <= 60 * minutes * SECOND
        clock.stamp()
    # Steady time loses a sixteenth of each hour, until the clock has caught up.
    time.advance(6 * 3600)
    assert clock.steady() > clock.now()
    time.advance(0.1 * 3600)
    assert clock.steady() == clock.now() == clock.stamp()


def test_steady_time_does_not_outrun_a_clock_that_is_a_little_slow() -> None:
    time = FakeTime()
    clock = time.clock()
    for second in range(1000):
        time.advance(1)
        time.set_wrong(-second / 1000)
        assert clock.steady() == clock.now()


@pytest.mark.parametrize(("seconds", "counts"), [(-0.0007, False), (-0.01, False), (-0.1, True), (-2, True)])
def test_a_clock_that_is_a_moment_slow_does_not_leave_stamps_behind(seconds: float, counts: bool) -> None:
    time = FakeTime()
    clock = time.clock()
    clock.stamp()
    time.advance(0.01)
    assert (clock.steady(), clock.behind()) == (START + 10_000, 0)
    time.set_wrong(seconds)
    time.advance(-seconds)
    assert clock.steady() > clock.now()
    assert (clock.behind() > 0) is counts


def test_time_for_locks_does_not_begin_before_the_newest_message_of_an_earlier_run() -> None:
    time = FakeTime()
    clock = time.clock()
    clock.begin_at(START + HOUR)
    time.advance(16)
    assert clock.steady() == START + HOUR + 15 * SECOND
    assert clock.now() == time.now


def test_time_that_passes_is_no_leap() -> None:
    time = FakeTime()
    clock = time.clock()
    time.advance(365 * 24 * 3600)
    assert clock.stamp() == clock.now() == time.now


def test_no_stamp_is_before_the_newest_of_an_earlier_run() -> None:
    clock = Clock(wall=lambda: 1000, passed=lambda: 0)
    clock.begin_at(5000)
    clock.begin_at(4000)
    assert clock.stamp() == 5000


def test_the_machines_clocks_count_microseconds() -> None:
    assert wall_time() > 1_700_000_000 * SECOND
    assert 0 < time_passed() < wall_time()


def test_enqueued_times_never_go_back_in_the_broker(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("due", scheduled=START + HOUR))
        await scene.later(3599)
        await scene.send("q", "a")
        scene.time.set_wrong(-7200)
        await scene.send("q", "b")
        scene.time.set_wrong(2)
        await scene.rounds()
        scene.time.set_wrong(-7200)
        await scene.rounds()
        await scene.send("q", "c")
        found = await scene.receive()
        assert [each.message.message_id for each in found] == ["a", "b", "due", "c"]
        times = [each.message.enqueued for each in found]
        assert times == sorted(times)

    play(tmp_path, plot)


def test_while_the_clock_leaps_nothing_is_accepted_expires_or_falls_due(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(auto_delete_on_idle=HOUR)
        await scene.send("q", message("lives", ttl=HOUR), message("due", scheduled=START + 2 * HOUR))
        [held] = await scene.receive(count=1)
        scene.time.set_wrong(86_400)
        with pytest.raises(ClockLeapt):
            await scene.send("q", "refused")
        await scene.rounds(trouble="The clock leapt")
        counts = await scene.counts()
        assert (counts.active, counts.scheduled) == (1, 1)
        assert held.message.token is not None
        scene.time.set_wrong(0)
        await scene.rounds()
        assert await scene.send("q", "fine") == [3]
        counts = await scene.counts()
        assert (counts.active, counts.scheduled) == (2, 1)

    play(tmp_path, plot)


def test_a_pulse_does_not_carry_a_wrong_time_into_the_next_run(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        scene.time.set_wrong(86_400)
        await scene.rounds(trouble="The clock leapt")
        assert scene.core.entrance.acceptor.last_commit == 1
        assert marks_of(scene.core.engine.log.reader().read(1, 1)).time == 0

    play(tmp_path, plot)


def test_while_the_clock_is_set_back_an_id_is_remembered_longer_and_never_shorter(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, duplicate_detection_history_time_window=60 * SECOND)
        await scene.send("q", "a")
        scene.time.set_wrong(-3600)
        for _ in range(3):
            scene.time.advance(1200)
            await scene.send("q", "a")
        assert (await scene.counts()).duplicates == 3
        scene.time.advance(59)
        await scene.send("q", "a")
        assert (await scene.counts()).duplicates == 4
        scene.time.advance(1)
        await scene.send("q", "a")
        assert await scene.taken() == ["a", "a"]

    play(tmp_path, plot)


def test_locks_end_and_messages_fall_due_and_expire_while_the_clock_is_set_back(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=60 * SECOND)
        await scene.queue("s", requires_session=True, lock_duration=60 * SECOND)
        await scene.send("q", message("held"), message("due", scheduled=START + 60 * SECOND))
        await scene.send("q", message("short", ttl=60 * SECOND))
        await scene.send("s", message("of a session", session="x"))
        assert len(await scene.receive(count=1)) == 1
        lock = await scene.broker.accept_session(Address("s"), "x")
        assert lock is not None
        scene.time.set_wrong(-86_400)
        await scene.later(65)
        found = await scene.receive()
        assert [each.message.message_id for each in found] == ["held", "due"]
        # Stamps stand still, but a due message does not get a time before it was due.
        assert [each.message.enqueued - START for each in found] == [0, 60 * SECOND]
        assert await scene.broker.accept_session(Address("s"), "x") is not None
        with pytest.raises(SessionLockLost):
            await scene.broker.renew_session(lock)

    play(tmp_path, plot)


def test_a_message_sent_while_the_clock_is_set_back_lives_as_long_as_it_should(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.topic()
        path = await scene.subscription(default_message_time_to_live=60 * SECOND)
        await scene.send("q", "first")
        scene.time.set_wrong(-86_400)
        await scene.later(600)
        await scene.send("q", message("short", ttl=60 * SECOND))
        await scene.send("t", "short")
        assert (await scene.counts()).active == 2
        assert (await scene.counts(path)).active == 1
        await scene.later(30)
        assert (await scene.counts()).active == 2
        await scene.later(40)
        assert (await scene.counts()).active == 1
        assert (await scene.counts(path)).active == 0

    play(tmp_path, plot)


def test_a_scheduled_message_falls_due_once_even_if_the_clock_goes_back_and_forth(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.topic()
        path = await scene.subscription()
        for entity in ("q", "t"):
            await scene.send(entity, message("due", scheduled=START + 60 * SECOND))
        for wrong in (-30, 30, -3600, 61, -3600, 61):
            scene.time.set_wrong(wrong)
            await scene.rounds(2)
        assert (await scene.taken("q"), await scene.taken(path)) == (["due"], ["due"])

    play(tmp_path, plot)


def test_the_next_start_accepts_a_clock_that_is_right_after_a_leap(tmp_path: Path) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue(detects=True)
            await first.send("q", "a")
            time.set_wrong(86_400)
            with pytest.raises(ClockLeapt, match="if it is right now, restart the broker"):
                await first.send("q", "b")
        async with scene(tmp_path, time) as second:
            await second.send("q", "b")
            found = await second.receive()
            assert [each.message.enqueued - START for each in found] == [0, 86_400 * SECOND]

    asyncio.run(run())


@pytest.mark.parametrize(("ahead", "is_fine"), [(MOST_LEAP, True), (MOST_LEAP + SECOND, False)])
def test_stored_times_may_be_a_little_ahead_and_that_is_logged(
    ahead: int, is_fine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stored = {"store 's'": START + ahead, "inbox 'i'": START, "ledger 'l'": START}
    if is_fine:
        check_stored_times(stored, START, Path("data"))
        assert [record.message for record in caplog.records] == [
            "The newest message was sent at 2026-09-21T14:23:20Z, but the clock says 2026-09-21T14:13:20Z; "
            "new messages get the same time until then"
        ]
    else:
        with pytest.raises(
            TimesAhead,
            match=r"^The newest message in store 's' was .* data folder 'data' can be used .* with the clock of then",
        ):
            check_stored_times(stored, START, Path("data"))


@pytest.mark.parametrize(("ahead", "is_fine"), [(MOST_LEAP, True), (MOST_LEAP + SECOND, False)])
def test_a_lock_that_was_granted_in_the_future_is_refused(ahead: int, is_fine: bool) -> None:
    held_until = START + LONGEST_LOCK + ahead
    with nullcontext() if is_fine else pytest.raises(TimesAhead, match=r"locked until .* with the clock of then"):
        check_stored_times({"store": START}, START, Path("data"), held_until)


def test_a_start_after_a_long_pause_works_and_asks_whether_it_was_one(caplog: pytest.LogCaptureFixture) -> None:
    check_stored_times({"store": START}, START + LONG_PAUSE, Path("data"))
    check_stored_times({"store": 0}, START, Path("data"))
    assert not caplog.records
    check_stored_times({"store": START}, START + 30 * DAY, Path("data"))
    assert [record.message for record in caplog.records] == [
        "The newest message was sent at 2026-09-21T14:13:20Z, and the clock says 2026-10-21T14:13:20Z: "
        "unless the broker was stopped for so long, stop it now and correct the clock"
    ]


def test_a_clock_that_is_far_behind_is_trouble(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        scene.time.set_wrong(-60)
        assert scene.broker.pipeline.trouble is None
        scene.time.set_wrong(-61)
        assert (scene.broker.pipeline.trouble or "").startswith(
            "The clock is 61 s behind the newest message, whose time all new messages get."
        )
        scene.time.advance(2)
        assert scene.broker.pipeline.trouble is None

    play(tmp_path, plot)
