"""Samples of the counters over time: what changed in each slot, for the last ten minutes, hour and day.

All of it is computed from plain values. A slot is unknown, None, if the broker did not run in it: nobody knows whether
anything happened then, or the entity did not exist.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncebus.engine.store.sql.samples import SampleRow
from oncebus.values.durations import SECOND

Series = list[int | None]


class Span(enum.Enum):
    """A span of time up to now, as (seconds in a slot, slots)."""

    TEN_MINUTES = (2, 300)
    HOUR = (15, 240)
    DAY = (300, 288)

    @property
    def step(self) -> int:
        """Return the seconds in a slot."""
        return self.value[0]

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return self.value[1]

    def slot(self, time: int) -> int:
        """Return the slot of a time in microseconds."""
        return time // (self.step * SECOND)


RATE_SLOTS = 5
"""The number of newest slots of the shortest span, ten seconds, from which a rate is computed."""


class Samples(NamedTuple):
    """The counts in each slot of a span, oldest first, without the current slot. `end` is when the last slot ends.

    `backlog` has the active messages at the end of each slot.
    """

    span: Span
    end: int
    new: Series
    duplicates: Series
    outgoing: Series
    completed: Series
    dead_lettered: Series
    backlog: Series

    @property
    def incoming(self) -> Series:
        """Return the messages that came in, duplicates included."""
        pairs = zip(self.new, self.duplicates, strict=True)
        return [None if new is None or dropped is None else new + dropped for new, dropped in pairs]


def per_second(series: Series, step: int) -> float | None:
    """Return the newest rate of a series per second; None if it is unknown."""
    known = [count for count in series[-RATE_SLOTS:] if count is not None]
    return sum(known) / (len(known) * step) if known else None


def samples_of(
    span: Span, now: int, since: int, rows: Iterable[SampleRow], runs: Sequence[tuple[int, int]], active: int
) -> Samples:
    """Return the samples of an entity that exists since a time.

    `rows` are its rows in this span, oldest first, up to the current slot. `runs` are the (begin, end) of the broker's
    runs. `active` is how many active messages the entity has now.
    """
    current = span.slot(now)
    by_slot = {row.slot: row for row in rows}
    known = _find_known(span, current, since, runs)
    series: tuple[Series, Series, Series, Series, Series] = ([], [], [], [], [])
    backlog: Series = []
    # Before the first change, the entity had as many active messages as at the start of that change.
    held = next((by_slot[slot].before for slot in sorted(by_slot)), active)
    for slot, is_known in zip(range(current - span.slots, current), known, strict=True):
        row = by_slot.get(slot)
        counts = (0, 0, 0, 0, 0)
        if row is not None:
            counts, held = row[3:8], row.active
        # A row shows that the broker ran, even if its end was not recorded.
        is_shown = is_known or row is not None
        for each, count in zip(series, counts, strict=True):
            each.append(count if is_shown else None)
        backlog.append(held if is_shown else None)
    return Samples(span, current * span.step * SECOND, *series, backlog)


def _find_known(span: Span, current: int, since: int, runs: Sequence[tuple[int, int]]) -> list[bool]:
    first, known = current - span.slots, [False] * span.slots
    for began, ended in runs:
        begin = max(span.slot(max(began, since)), first)
        # The end of a run is not in it: it may be the start of a slot.
        for slot in range(begin, min(span.slot(max(ended - 1, began)) + 1, current)):
            known[slot - first] = True
    return known
