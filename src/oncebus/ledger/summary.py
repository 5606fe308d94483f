"""The size of a ledger at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.durations import utc_text


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

    def __str__(self) -> str:
        """Return a line such as `1,200,000 ids in 12 runs, 39.6 MB, seen up to 2026-01-31T08:30:00Z`."""
        seen = "" if self.horizon is None else f", seen up to {utc_text(self.horizon)}"
        ids, runs = ("id" if self.ids == 1 else "ids"), ("run" if self.runs == 1 else "runs")
        return f"{self.ids:,} {ids} in {self.runs:,} {runs}, {self.bytes / 1e6:,.1f} MB{seen}"
