"""The time that messages are stamped with: it never steps back, and it does not follow a leap."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from oncebus.errors import OncebusError

log = logging.getLogger(__name__)

MOST_LEAP = 10 * 60 * 1_000_000
"""How far the clock may run ahead of what has passed since it was last read, in microseconds."""

_PACE, _FULL_PACE = 15, 16

_LAG = 10_000
"""By how much stamps may be behind and it is nothing, in microseconds: each clock is a little slow now and then."""


class ClockLeapt(OncebusError):
    """The machine's clock has moved forward by more than the time that has passed."""


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

    def passed(self) -> int:
        """Microseconds since some moment, on a clock that nobody sets."""
        return self._passed()

    def stamp(self) -> int:
        """The time to write into a message."""
        wall, leap = self._read()
        if leap > MOST_LEAP:
            raise ClockLeapt(
                f"The clock leapt {leap / 1e6:.0f} s forward. Messages are refused until it is set right; if it is "
                "right now, start the broker again."
            )
        if wall < self.last:
            if not self._is_back and self.last - wall > 1_000_000:
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
