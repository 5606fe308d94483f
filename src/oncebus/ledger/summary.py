"""The size of a ledger at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.ledger.listing import Listing
from oncebus.ledger.names import horizon_of
from oncebus.values import disk
from oncebus.values.durations import utc_text


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The size of a ledger at one moment.

    Counts include tombstones, and ids that are forgotten but not yet deleted.
    `horizon` is the greatest time that the ledger has seen, in microseconds since 1970; None if it has seen nothing.
    """

    ids: int
    bytes: int
    runs: int
    generation: int
    horizon: int | None

    @classmethod
    def of(cls, listing: Listing) -> LedgerSummary:
        """Return the size of a ledger with these files."""
        visible = listing.visible()
        return cls(
            ids=sum(run.size for run in visible),
            bytes=sum(stamp.size for name, stamp in listing.stamps.items() if not name.startswith(disk.TEMPORARY)),
            runs=len(visible),
            generation=listing.newest.number if listing.newest else 0,
            horizon=horizon_of(visible) if visible else None,
        )

    def __str__(self) -> str:
        """Return a line such as `1,200,000 ids in 12 runs, 39.6 MB, seen up to 2026-01-31T08:30:00Z`."""
        return self.size_text() + ("" if self.horizon is None else f", seen up to {utc_text(self.horizon)}")

    def size_text(self) -> str:
        """Return the same without the time."""
        ids, runs = ("id" if self.ids == 1 else "ids"), ("run" if self.runs == 1 else "runs")
        return f"{self.ids:,} {ids} in {self.runs:,} {runs}, {self.bytes / 1e6:,.1f} MB"
