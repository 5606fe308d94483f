"""What a ledger's folder holds at a moment, and what that says of its newest writer."""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.ledger.generations import Generation, lineage
from oncebus.ledger.names import Position, RunName, visible_runs
from oncebus.ledger.storage import Stamp

BATCH_QUERY = "batch "
"""What the query of a batch that joined begins with: a batch is committed by its claim."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All files by name, and the generations and runs among them in order."""

    stamps: dict[str, Stamp]
    generations: list[Generation]
    runs: list[RunName]
    confirmed: dict[int, int]

    @property
    def newest(self) -> Generation | None:
        """The generation that was claimed last."""
        return self.generations[-1] if self.generations else None

    def last_recorded(self) -> int | None:
        """The newest batch of the newest query that counts."""
        if self.newest is None:
            return None
        numbers = lineage(self.generations)
        counting = visible_runs(self.runs, self.generations, Position(self.newest.number + 1, 0))
        return max((run.last.batch for run in counting if run.last.generation in numbers), default=None)

    def last_confirmed(self) -> int | None:
        """The newest batch of the newest query that is known to be committed."""
        if self.newest is None:
            return None
        if self.newest.query.startswith(BATCH_QUERY):
            return self.newest.first_batch
        # That a query was started at a batch proves that all before it are committed.
        return max(self.newest.first_batch - 1, self.confirmed.get(self.newest.number, -1))
