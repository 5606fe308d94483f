"""The clock that stamps messages: it never goes back, and does not follow a leap forward."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from oncebus.engine.stored_times import ADVICE, MOST_LEAP
from oncebus.values.durations import SECOND
from oncebus.values.errors import ErrorKind, OncebusError

log = logging.getLogger(__name__)

SHOWN = 60 * SECOND
"""How far the wall clock may be behind before the broker counts as unhealthy."""

_NOTED = SECOND

_PACE, _FULL_PACE = 15, 16

_LAG = 10_000
"""How far stamps may be behind before `behind` reports it, in microseconds: every clock is a little slow at times."""


class ClockLeapt(OncebusError):
    """The machine's clock has moved forward by more than the time that really passed."""

    kind = ErrorKind.BUSY


def wall_time() -> int:
    """Return the machine's time in microseconds since 1970."""
    return time.time_ns() // 1000


def time_passed() -> int:
    """Return microseconds on a monotonic clock that keeps running while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Clock:
    """The broker's clock. `last` is the newest stamp that was ever given; no later stamp is before it.

    When the machine's clock is set back, stamps stand still until it has caught up. When it leaps forward, `stamp`
    raises `ClockLeapt` until the clock is corrected or the broker restarts: a wrong time in one message would make all
    later ones wrong. Meanwhile `now` continues as if there had been no leap, so that a wrong clock expires nothing.
    `steady` continues in both cases: an hour's wait takes an hour.
    """

    def __init__(
        self, last: int = 0, *, wall: Callable[[], int] = wall_time, passed: Callable[[], int] = time_passed
    ) -> None:
        self.last = last
        self._wall = wall
        self._passed = passed
        # When the clock was last known to be right. Not updated while it is set back: setting it right is no leap.
        self._seen = (wall(), passed())
        self._is_back = False
        # What `steady` returned last, and when.
        self._steady = (max(last, self._seen[0]), self._seen[1])

    def begin_at(self, last: int) -> None:
        """Give no stamp before `last` from now on."""
        self.last = max(self.last, last)
        self._steady = (max(self._steady[0], last), self._steady[1])

    def now(self) -> int:
        """Return the time to compare with times from other machines: this machine's time, without a leap."""
        wall, leap = self._read()
        return wall if leap <= MOST_LEAP else wall - leap

    def token_time(self) -> int:
        """Return the time to compare with the expiry of tokens: `now`, unless a test moves the broker's time."""
        return self.now()

    def steady(self) -> int:
        """Return the time for locks, schedules and expiry: `now`, or a slower clock while the machine's is set back.

        Because it is slower, `now` catches up with it. It also does not run ahead of a machine clock that is always a
        little slow.
        """
        before, at = self._steady
        passed = self._passed()
        self._steady = (max(self.now(), before + (passed - at) * _PACE // _FULL_PACE), passed)
        return self._steady[0]

    def behind(self) -> int:
        """Return how far stamps are behind `steady` because the clock was set back; 0 if it is only a moment."""
        behind = self.steady() - max(self.now(), self.last)
        return behind if behind > _LAG else 0

    @property
    def trouble(self) -> str | None:
        """Return a text for the operator if the clock is more than a minute behind the newest stamp; else None."""
        behind = self.last - self._wall()
        if behind <= SHOWN:
            return None
        return (
            f"The clock is {behind / 1e6:.0f} s behind the newest message, whose time all new messages get. Correct "
            f"the clock. If it is right, wait until it has caught up. {ADVICE}"
        )

    def passed(self) -> int:
        """Return microseconds on a monotonic clock. Only differences have a meaning."""
        return self._passed()

    def stamp(self, least: int = 0) -> int:
        """Return the time to write into a message. Raises `ClockLeapt`.

        The result is not before `least`, unless `least` is after `steady`. So a message that falls due while stamps
        stand still does not get a time before it was due.
        """
        wall, leap = self._read()
        if leap > MOST_LEAP:
            raise ClockLeapt(
                f"The clock leapt {leap / 1e6:.0f} s forward. Messages are refused until it is corrected; if it is "
                "right now, restart the broker."
            )
        if least > self.last:
            self.last = max(self.last, min(least, self.steady()))
        if wall < self.last:
            if not self._is_back and self.last - wall > _NOTED:
                log.warning(
                    "The clock is %.1f s behind the newest message, whose time all new messages get",
                    (self.last - wall) / 1e6,
                )
                self._is_back = True
            return self.last
        self._seen = (wall, self._passed())
        self._is_back = False
        self.last = wall
        return wall

    def _read(self) -> tuple[int, int]:
        """Return the machine's time, and how far it has moved beyond the time that really passed."""
        wall = self._wall()
        # The newest stamp was right as well: a clock that was slow at the start may be corrected without being a leap.
        known = max(self._seen[0], self.last)
        return wall, (wall - known) - (self._passed() - self._seen[1])
