"""Lists the files of a ledger at one moment, and derives the state of its newest writer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from oncebus.ledger.aside_marks import PREFIX, AsideMark
from oncebus.ledger.generations import Generation, generation_file, lineage, main_writer, parts_of_query
from oncebus.ledger.names import Position, RunName, horizon_of, parse_run_names, visible_runs
from oncebus.ledger.storage import Stamp, abandoned_files

GENERATION = re.compile(r"generation-\d+\.json")
CONFIRMED = re.compile(r"confirmed-(\d+)-(\d+)")
SEED = re.compile(r"seed-(\d+)-([0-9a-f]+)-([0-9a-f]+)\.open\.(\d+)")
"""The mark of an open seed, with its number, token, fingerprint and attempt: see `oncebus.ledger.seeding`."""

KEPT_GENERATIONS = 64
"""The number of newest generations that are kept even without runs, so that their queries get `LedgerInUse`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All files of a ledger by name, and the generations and runs among them, in order.

    `voids` are generations that only take a number.
    """

    stamps: dict[str, Stamp]
    generations: list[Generation]
    runs: list[RunName]
    confirmed: dict[int, int]
    asides: list[AsideMark] = field(default_factory=list)
    voids: list[Generation] = field(default_factory=list)

    @classmethod
    def of(cls, stamps: dict[str, Stamp], generations: Sequence[Generation]) -> Listing:
        """Return the listing of these files. `generations` are those among them, in any order."""
        asides: list[AsideMark] = []
        confirmed: dict[int, int] = {}
        for name in stamps:
            if match := CONFIRMED.fullmatch(name):
                number, batch = int(match[1]), int(match[2])
                confirmed[number] = max(batch, confirmed.get(number, batch))
            elif name.startswith(PREFIX) and (mark := AsideMark.parse(name)):
                asides.append(mark)
        in_order = sorted(generations, key=lambda generation: generation.number)
        counting = [generation for generation in in_order if not generation.is_void]
        voids = [generation for generation in in_order if generation.is_void]
        return cls(stamps, counting, parse_run_names(stamps), confirmed, asides, voids)

    @property
    def next_number(self) -> int:
        """Return the number that the next writer claims."""
        return 1 + max((generation.number for generation in (*self.generations[-1:], *self.voids)), default=0)

    @property
    def main(self) -> Generation | None:
        """Return the writer whose turn it is: the newest generation that is not an aside."""
        return main_writer(self.generations)

    @property
    def newest(self) -> Generation | None:
        """Return the generation that was claimed last."""
        return self.generations[-1] if self.generations else None

    def is_unchanged_since(self, number: int) -> bool:
        """Return whether only asides and finished batches have come after the generation `number`.

        A generation whose file was deleted may have been that of a query. If the ledger was restored from a time before
        the generation, it has changed too.
        """
        later = [generation for generation in (*self.generations, *self.voids) if generation.number > number]
        return len(later) == self.next_number - 1 - number and all(each.is_aside or each.is_batch for each in later)

    @property
    def parts_of_query(self) -> int | None:
        """Return the number of parts of the last query that keeps one."""
        return parts_of_query(self.generations)

    def last_recorded(self) -> int | None:
        """Return the newest batch of the newest query that has a run which counts; None if there is none."""
        main = self.main
        if self.newest is None or main is None:
            return None
        numbers = lineage([generation for generation in self.generations if generation.number <= main.number])
        return max((run.last.batch for run in self.visible() if run.last.generation in numbers), default=None)

    def last_batch_of(self, generation: Generation) -> int | None:
        """Return the newest batch of a generation that has a run; None if there is none."""
        return max((run.last.batch for run in self.runs if run.last.generation == generation.number), default=None)

    def last_confirmed(self) -> int | None:
        """Return the newest batch of the newest query that is known to be committed; None if there is none."""
        main = self.main
        if main is None:
            return None
        if main.is_batch:
            return main.first_batch
        # A query starts at a batch only if all earlier batches are committed.
        return max(main.first_batch - 1, self.confirmed.get(main.number, -1))

    def visible(self) -> list[RunName]:
        """Return the runs that count now: those that the next writer sees if all of them are committed."""
        newest = self.newest.number if self.newest else 0
        return visible_runs(self.runs, self.generations, Position(newest + 1, 0))

    def horizon(self) -> int:
        """Return the greatest horizon of all runs that count; `NO_HORIZON` if there are none."""
        return horizon_of(self.visible())

    def open_asides(self) -> list[AsideMark]:
        """Return the marks of asides that are open, or whose process died."""
        return [mark for mark in self.asides if mark.number >= self.next_number and not mark.is_joining]

    def is_at_rest(self) -> bool:
        """Return whether the newest writer has committed everything that it has written.

        For a streaming query this is always False, because its files do not show it.
        """
        main = self.main
        if main is None or main.is_batch:
            return True
        if not main.is_in_query:
            return False
        recorded, confirmed = self.last_recorded(), self.last_confirmed()
        return recorded is None or (confirmed is not None and recorded <= confirmed)

    def joining(self, batch: int) -> AsideMark | None:
        """Return the mark of an aside that is about to join, if this batch cannot yet know whether it sees the aside.

        The mark without a batch number comes first, and every batch must wait. The mark with a number says which batch
        will be the first to see the aside: earlier batches continue.
        """
        marks = [mark for mark in self.asides if mark.is_joining and mark.number >= self.next_number]
        decided = {mark.token: mark.batch for mark in marks if mark.batch is not None}
        return next((mark for mark in marks if batch >= decided.get(mark.token, 0)), None)

    def missing(self) -> list[str]:
        """Return the names of the generations that must be here but are not. Their runs would look like leftovers.

        That the newest one is missing shows only if it is that of a query: a batch outside a query has runs before it
        claims its generation.
        """
        numbers = {one.number for one in (*self.generations, *self.voids)}
        newest = self.next_number - 1
        oldest = min((run.last.generation for run in self.runs), default=newest)
        missing = set(range(max(1, min(oldest, newest - KEPT_GENERATIONS)), newest)) - numbers
        for run in self.runs:
            if run.last.generation > newest + 1 or (run.last.generation > newest and not run.is_of_batch):
                missing.add(run.last.generation)
        missing.update(number for number in self.confirmed if number > newest)
        return [name for name in map(generation_file, sorted(missing)) if name not in self.stamps]

    def unclaimed_runs(self) -> list[RunName]:
        """Return the runs of batches that have not joined: each is open, or its process died."""
        return [run for run in self.runs if run.last.generation >= self.next_number]

    def leftovers(self) -> list[str]:
        """Return the files that mean nothing any more, of ended writers and of those that died."""
        visible = set(self.visible())
        garbage = [run for run in self.runs if run not in visible and run.last.generation < self.next_number]
        return [*map(str, garbage), *self.superseded_files()]

    def superseded_files(self) -> list[str]:
        """Return the files to delete: generations that nobody needs any more, and confirmations that were used.

        Also files that a writer began to write and never published.

        Whether the batches of a generation count depends on the generations after it. So a generation may be deleted
        only together with all earlier ones, and only if none of them has left a run. A run that appears later under a
        deleted generation does not count.
        """
        unfinished = abandoned_files(self.stamps)
        if self.newest is None:
            return unfinished
        main = self.main or self.newest
        oldest = min((run.last.generation for run in self.runs), default=self.newest.number)
        # Many asides may have come since the query started, and it goes on.
        needed = min(oldest, main.number, self.newest.number - KEPT_GENERATIONS)
        confirmed = [(name, CONFIRMED.fullmatch(name)) for name in self.stamps]
        seeds = [(name, SEED.fullmatch(name)) for name in self.stamps]
        newest_confirmed = (main.number, self.confirmed.get(main.number, -1))
        return [
            *unfinished,
            *(mark.name for mark in self.asides if mark.number < self.next_number),
            *(name for name, match in seeds if match and int(match[1]) < self.next_number),
            *(one.file_name for one in (*self.generations, *self.voids) if one.number < needed),
            *(name for name, match in confirmed if match and (int(match[1]), int(match[2])) < newest_confirmed),
        ]
