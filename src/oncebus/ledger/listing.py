"""What a ledger's folder holds at a moment, and what that says of its newest writer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncebus.ledger.generations import Generation, lineage
from oncebus.ledger.names import Position, RunName, horizon_of, visible_runs
from oncebus.ledger.storage import Stamp

GENERATION = re.compile(r"generation-\d+\.json")
CONFIRMED = re.compile(r"confirmed-(\d+)-(\d+)")

KEPT_GENERATIONS = 64
"""So many of the newest stay though nothing of them is left: their queries are told that they were taken over."""


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
        if self.newest.is_batch:
            return self.newest.first_batch
        # That a query was started at a batch proves that all before it are committed.
        return max(self.newest.first_batch - 1, self.confirmed.get(self.newest.number, -1))

    def horizon(self) -> int:
        """How far time has come in all that counts; `NO_HORIZON` where nothing does."""
        newest = self.newest.number if self.newest else 0
        return horizon_of(visible_runs(self.runs, self.generations, Position(newest + 1, 0)))

    def is_at_rest(self) -> bool:
        """Whether the newest writer has, at the moment, nothing under way: all that it has written is committed.

        A streaming query never is, as far as its files tell.
        """
        if self.newest is None or self.newest.is_batch:
            return True
        if not self.newest.is_in_query:
            return False
        recorded, confirmed = self.last_recorded(), self.last_confirmed()
        return recorded is None or (confirmed is not None and recorded <= confirmed)

    def superseded(self) -> list[str]:
        """The files of generations that nobody needs any more, and of confirmations that have been acted on.

        What a generation's batches count for stands in those after it. So all go that are older than whatever has left
        a run, or none: a run that appears later under the number of one that is gone does not count.
        """
        if self.newest is None:
            return []
        oldest = min((run.last.generation for run in self.runs), default=self.newest.number)
        needed = min(oldest, self.newest.number - KEPT_GENERATIONS)
        confirmed = [(name, CONFIRMED.fullmatch(name)) for name in self.stamps]
        telling = (self.newest.number, self.confirmed.get(self.newest.number, -1))
        return [
            *(generation.file_name for generation in self.generations if generation.number < needed),
            *(name for name, match in confirmed if match and (int(match[1]), int(match[2])) < telling),
        ]
