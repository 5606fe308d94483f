"""Lists the files of a ledger at one moment, and derives the state of its newest writer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebus.ledger.generations import Generation, lineage
from oncebus.ledger.names import Position, RunName, horizon_of, visible_runs
from oncebus.ledger.storage import Stamp

GENERATION = re.compile(r"generation-\d+\.json")
CONFIRMED = re.compile(r"confirmed-(\d+)-(\d+)")

KEPT_GENERATIONS = 64
"""The number of newest generations that are kept even without runs, so that their queries get `LedgerInUse`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All files of a ledger by name, and the generations and runs among them, in order."""

    stamps: dict[str, Stamp]
    generations: list[Generation]
    runs: list[RunName]
    confirmed: dict[int, int]

    @property
    def newest(self) -> Generation | None:
        """Return the generation that was claimed last."""
        return self.generations[-1] if self.generations else None

    def last_recorded(self) -> int | None:
        """Return the newest batch of the newest query that has a run which counts; None if there is none."""
        if self.newest is None:
            return None
        numbers = lineage(self.generations)
        counting = visible_runs(self.runs, self.generations, Position(self.newest.number + 1, 0))
        return max((run.last.batch for run in counting if run.last.generation in numbers), default=None)

    def last_confirmed(self) -> int | None:
        """Return the newest batch of the newest query that is known to be committed; None if there is none."""
        if self.newest is None:
            return None
        if self.newest.is_batch:
            return self.newest.first_batch
        # A query starts at a batch only if all earlier batches are committed.
        return max(self.newest.first_batch - 1, self.confirmed.get(self.newest.number, -1))

    def horizon(self) -> int:
        """Return the greatest horizon of all runs that count; `NO_HORIZON` if there are none."""
        newest = self.newest.number if self.newest else 0
        return horizon_of(visible_runs(self.runs, self.generations, Position(newest + 1, 0)))

    def is_at_rest(self) -> bool:
        """Return whether the newest writer has committed everything that it has written.

        For a streaming query this is always False, because its files do not show it.
        """
        if self.newest is None or self.newest.is_batch:
            return True
        if not self.newest.is_in_query:
            return False
        recorded, confirmed = self.last_recorded(), self.last_confirmed()
        return recorded is None or (confirmed is not None and recorded <= confirmed)

    def superseded(self) -> list[str]:
        """Return the files to delete: generations that nobody needs any more, and confirmations that were used.

        Whether the batches of a generation count depends on the generations after it. So a generation may be deleted
        only together with all earlier ones, and only if none of them has left a run. A run that appears later under a
        deleted generation does not count.
        """
        if self.newest is None:
            return []
        oldest = min((run.last.generation for run in self.runs), default=self.newest.number)
        needed = min(oldest, self.newest.number - KEPT_GENERATIONS)
        confirmed = [(name, CONFIRMED.fullmatch(name)) for name in self.stamps]
        newest_confirmed = (self.newest.number, self.confirmed.get(self.newest.number, -1))
        return [
            *(generation.file_name for generation in self.generations if generation.number < needed),
            *(name for name, match in confirmed if match and (int(match[1]), int(match[2])) < newest_confirmed),
        ]
