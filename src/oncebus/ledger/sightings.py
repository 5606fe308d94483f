"""Says what a ledger knows about one key, from everything that its runs hold about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from oncebus.detection import Memories, find_uncancelled, is_forgotten
from oncebus.values.durations import LAST_MOMENT, utc_text


class Memory(StrEnum):
    """Whether a row that the ledger has seen still counts."""

    REMEMBERED = "remembered"
    OVER = "over"
    """Its window plus lateness is over. Its entry will be deleted."""

    FORGOTTEN = "forgotten"
    """Somebody made the ledger forget it."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row with the key that was new. Rows less than a window away from it are duplicates while it is remembered.

    It is remembered until the ledger has seen the time `until`. Times are in microseconds since 1970. `sequence` is
    None if the row had no sequence number.
    """

    time: int
    sequence: int | None
    until: int
    memory: Memory

    def __str__(self) -> str:
        """Return a text such as `new at 2026-01-31T08:30:00Z, until the ledger has seen 2026-01-31T08:40:00Z`."""
        number = "" if self.sequence is None else f", sequence number {self.sequence}"
        seen = f"new at {utc_text(self.time, is_precise=True)}{number}"
        if self.memory is Memory.FORGOTTEN:
            return f"{seen}, forgotten on request"
        until = utc_text(self.until, is_precise=True)
        if self.memory is Memory.OVER:
            return f"{seen}, over since the ledger has seen {until}"
        return f"{seen}, {'for ever' if self.is_for_ever else f'until the ledger has seen {until}'}"

    @property
    def is_for_ever(self) -> bool:
        """Return whether the memory never ends."""
        return self.until > LAST_MOMENT


def sightings_in(memories: Memories, horizon: int) -> list[Sighting]:
    """Return what the memories of one key mean at this horizon, in the order of time."""
    is_over = is_forgotten(memories.time, memories.keep, horizon)
    left = find_uncancelled(memories.window, [memories.key], [memories.time, memories.sequence, memories.keep])
    found = []
    for at in np.lexsort((memories.sequence, memories.time)):
        if memories.window[at] >= 0:
            memory = Memory.OVER if is_over[at] else Memory.REMEMBERED if left[at] else Memory.FORGOTTEN
            time = int(memories.time[at])
            sequence = int(memories.sequence[at]) if memories.has_sequence[at] else None
            until = time + int(memories.keep[at])
            found.append(Sighting(time, sequence, until, memory))
    return found
