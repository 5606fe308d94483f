"""Measures how far two clocks are apart, as bounds that are certain, and decides whether that is too far.

Verdicts do not depend on the clocks of executors: the driver gives each batch its time. But a ledger decides by the
clock whether a writer on another machine is still alive: it counts as ended when its newest file is 60 seconds old. So
with clocks that far apart, a second query takes the ledger of a running one. We warn at a tenth of that: machines with
NTP are within milliseconds, so a clock that is seconds off is not synchronised and will drift further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncebus.doctor.findings import Finding, failure, ok, warning
from oncebus.ledger.generations import SILENT_SECONDS

FAILS_AT = SILENT_SECONDS
WARNS_ABOVE = SILENT_SECONDS / 10


@dataclass(frozen=True, slots=True)
class Offset:
    """Bounds, in seconds, of how far another clock is ahead of ours. Negative means behind."""

    low: float
    high: float

    @classmethod
    def measure(cls, before: float, seen: float, after: float, resolution: float = 0.0) -> Offset:
        """Return the bounds if the other clock showed `seen` at some moment between `before` and `after` on ours.

        `resolution` is the size of the steps in which the other clock is reported; steps are rounded down.
        """
        return cls(seen - after, seen + resolution - before)

    def and_also(self, other: Offset) -> Offset:
        """Return the bounds that two measurements leave. If they contradict each other, the later one."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Offset(low, high) if low <= high else other

    @property
    def least(self) -> float:
        """Return the distance that the clocks have in any case."""
        return 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))

    @property
    def most(self) -> float:
        """Return the distance that the clocks have at most."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        middle, error = (self.low + self.high) / 2, (self.high - self.low) / 2
        return f"{middle:+.1f} ± {error:.1f} s"


def clock_finding(check: str, offsets: Mapping[str, Offset], ours: str) -> Finding:
    """Judge the clocks of machines by name, each measured against the clock of `ours`."""
    worst, offset = max(offsets.items(), key=lambda item: (item[1].least, item[1].most))
    found = f"the clock of {worst} is {offset} from that of {ours}"
    advice = "Synchronise the clocks (NTP, chrony)"
    if offset.least >= FAILS_AT:
        return failure(check, found, f"{advice}: a running writer counts as ended after {FAILS_AT:.0f} s of silence.")
    if offset.least > WARNS_ABOVE:
        return warning(check, found, f"{advice}; {FAILS_AT:.0f} s let a second query take over a running one's ledger.")
    widest = max(each.most for each in offsets.values())
    if widest > WARNS_ABOVE:
        return warning(check, f"{found}; the answer took too long to tell more", "Run again while the cluster is idle.")
    return ok(check, f"within {widest:.1f} s of {ours}")
