"""Compares the times that are stored with the clock, when a broker opens."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from oncebus.model.entities.limits import LONGEST_LOCK
from oncebus.values.durations import DAY, MINUTE, SECOND, utc_text
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

MOST_LEAP = 10 * MINUTE
"""How far a clock may be from the time that is known to be right, in microseconds."""

LONG_PAUSE = 7 * DAY
"""The longest window of the service: after a pause of this length all its ids are forgotten."""

_NOTED = SECOND

ADVICE = "See 'A clock that was wrong' in docs/reference/serve.md."


class TimesAhead(OncebusError):
    """Stored messages have times in the future: the clock was ahead then, or is behind now."""


def check_stored_times(stored: Mapping[str, int], now: int, data: Path, held_until: int = 0) -> None:
    """Compare the newest time in each part of a data folder with the clock. `stored` maps a part's name to its time.

    Raises `TimesAhead` if one is ahead by more than `MOST_LEAP`: time would stand still until then, and ids would be
    remembered that much longer. Also raises it if the lock that ends at `held_until` must have been granted by a clock
    that far ahead, because nobody could receive its message until then. Logs a smaller lead. Also logs a clock that is
    far ahead of all parts, because the broker cannot tell whether it was stopped for so long or the clock is wrong.
    """
    part, newest = max(stored.items(), key=lambda item: item[1])
    advice = (
        f"but the clock says {utc_text(now)}. If the clock is wrong now, correct it. If it was wrong then, data folder "
        f"'{data}' can be used when the clock has come so far, or with the clock of then. {ADVICE}"
    )
    if newest - now > MOST_LEAP:
        raise TimesAhead(f"The newest message in {part} was sent at {utc_text(newest)}, {advice}")
    if held_until - LONGEST_LOCK - now > MOST_LEAP:
        raise TimesAhead(f"A message or session in the store is locked until {utc_text(held_until)}, {advice}")
    if newest - now > _NOTED:
        log.warning(
            "The newest message was sent at %s, but the clock says %s; new messages get the same time until then",
            utc_text(newest),
            utc_text(now),
        )
    elif newest and now - newest > LONG_PAUSE:
        log.warning(
            "The newest message was sent at %s, and the clock says %s: unless the broker was stopped for so long, "
            "stop it now and correct the clock",
            utc_text(newest),
            utc_text(now),
        )
