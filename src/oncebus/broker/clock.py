"""The time that messages are stamped with: it never steps back, and it does not follow a leap."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from oncebus.durations import DAY, SECOND, utc_text
from oncebus.entities.limits import LONGEST_LOCK
from oncebus.errors import OncebusError

log = logging.getLogger(__name__)

MOST_LEAP = 10 * 60 * 1_000_000
"""How far the clock may run ahead of what has passed since it was last read, in microseconds."""

LONG_PAUSE = 7 * DAY
"""A longer window is not allowed: after such a time all ids are forgotten."""

SHOWN = 60 * SECOND
"""By how much the clock may be behind before the broker counts as unwell."""

_NOTED = SECOND

_PACE, _FULL_PACE = 15, 16

_LAG = 10_000
"""By how much stamps may be behind and it is nothing, in microseconds: each clock is a little slow now and then."""


class ClockLeapt(OncebusError):
    """The machine's clock has moved forward by more than the time that has passed."""


class TimesAhead(OncebusError):
    """What is stored was accepted later than it is now: the clock was ahead then, or is behind now."""


def check_stored_times(stored: Mapping[str, int], now: int, data: Path, held_until: int = 0) -> None:
    """Compare the newest times in the parts of a data folder, by the names of the parts, with the clock.

    Raises `TimesAhead` where one lies further ahead than `MOST_LEAP`: time would stand still until then, and ids would
    be remembered for that much longer. So too where a lock that ends at `held_until` was given later than that: its
    message would be kept from everybody until then. A smaller lead is logged. So is a clock that is far ahead of all of
    them: nobody can tell from here whether the broker was stopped for so long or the clock is wrong.
    """
    part, newest = max(stored.items(), key=lambda item: item[1])
    repair = (
        f"but the clock says {utc_text(now)}. If the clock is wrong now, set it right. If it was wrong then, run: "
        f"oncebus repair clock --data '{data}'"
    )
    if newest - now > MOST_LEAP:
        raise TimesAhead(f"The newest message in {part} was accepted at {utc_text(newest)}, {repair}")
    if held_until - LONGEST_LOCK - now > MOST_LEAP:
        raise TimesAhead(f"A message or session in the store is locked until {utc_text(held_until)}, {repair}")
    if newest - now > _NOTED:
        log.warning(
            "The newest message was accepted at %s, but the clock says %s; time stands still until then",
            utc_text(newest),
            utc_text(now),
        )
    elif newest and now - newest > LONG_PAUSE:
        log.warning(
            "The newest message was accepted at %s, and the clock says %s: if the broker was not stopped for so long, "
            "stop it now and set the clock right",
            utc_text(newest),
            utc_text(now),
        )


def wall_time() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def time_passed() -> int:
    """Microseconds on a clock that nobody sets; it runs on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Clock:
    """Stamps. `last` is the newest stamp that was ever given: what comes later is not before it.

    When the machine's clock is set back, stamps stand still until it has caught up. When it leaps forward, `stamp`
    raises `ClockLeapt` until it is set right, or the broker is started again: a wrong time in one message would stand
    in all later ones. Meanwhile `now` goes on as if it had not leapt: nothing expires for a wrong clock. `steady` goes
    on either way: what waits for an hour waits for an hour.
    """

    def __init__(
        self, last: int = 0, *, wall: Callable[[], int] = wall_time, passed: Callable[[], int] = time_passed
    ) -> None:
        self.last = last
        self._wall = wall
        self._passed = passed
        # When the clock was last known to be right. Not while it is set back: to set it right again is no leap.
        self._seen = (wall(), passed())
        self._is_back = False
        # What `steady` said last, and when.
        self._steady = (max(last, self._seen[0]), self._seen[1])

    def begin_at(self, last: int) -> None:
        """No stamp before this one from now on."""
        self.last = max(self.last, last)
        self._steady = (max(self._steady[0], last), self._steady[1])

    def now(self) -> int:
        """The date, for what others date too: what the machine's clock says, unless it has leapt."""
        wall, leap = self._read()
        return wall if leap <= MOST_LEAP else wall - leap

    def steady(self) -> int:
        """The time for locks, schedules and expiry: `now`, but where that is set back it goes on, a little slower.

        So it is caught up with in time, and does not run ahead of a clock that is always a little slow.
        """
        before, at = self._steady
        passed = self._passed()
        self._steady = (max(self.now(), before + (passed - at) * _PACE // _FULL_PACE), passed)
        return self._steady[0]

    def behind(self) -> int:
        """How far stamps are behind `steady`, because the clock was set back. Nothing while that is a moment."""
        behind = self.steady() - max(self.now(), self.last)
        return behind if behind > _LAG else 0

    @property
    def trouble(self) -> str | None:
        """What is wrong with the clock and keeps time from going on; None where it is a matter of a minute."""
        behind = self.last - self._wall()
        if behind <= SHOWN:
            return None
        return (
            f"The clock is {behind / 1e6:.0f} s behind the newest message, and time stands still. Set it right; if it "
            "is right, stop the broker and run 'oncebus repair clock'."
        )

    def passed(self) -> int:
        """Microseconds since some moment, on a clock that nobody sets."""
        return self._passed()

    def stamp(self, least: int = 0) -> int:
        """The time to write into a message: not before `least`, as far as `steady` has come.

        So a message that falls due while stamps stand still is not dated before it was due.
        """
        wall, leap = self._read()
        if leap > MOST_LEAP:
            raise ClockLeapt(
                f"The clock leapt {leap / 1e6:.0f} s forward. Messages are refused until it is set right; if it is "
                "right now, start the broker again."
            )
        if least > self.last:
            self.last = max(self.last, min(least, self.steady()))
        if wall < self.last:
            if not self._is_back and self.last - wall > _NOTED:
                log.warning(
                    "The clock is %.1f s behind the newest message; time stands still", (self.last - wall) / 1e6
                )
                self._is_back = True
            return self.last
        self._seen = (wall, self._passed())
        self._is_back = False
        self.last = wall
        return wall

    def _read(self) -> tuple[int, int]:
        """The machine's time, and how far that is ahead of what has passed."""
        wall = self._wall()
        # The newest stamp was a right time too: a clock that was slow at the start may be set right.
        known = max(self._seen[0], self.last)
        return wall, (wall - known) - (self._passed() - self._seen[1])
