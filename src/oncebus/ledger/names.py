"""The names of a ledger's files, and which runs a batch sees. Pure: all that is known here is in the names.

    ledger.json                                        what the ledger is for
    generation-000002.json                             see `oncebus.ledger.generations`
    confirmed-000002-17                                batch 17 of generation 2 is known to be committed
    run-2.17-2.17-0.4-50000-1731700000000000-TOKEN.run the keys accepted by generation 2 in batch 17, part 0 of 4:
                                                       50000 entries, horizon 1731700000000000
    run-2.17-2.17-0.4-50000-1731…-1731…-TOKEN.run      the same, of a batch that Spark has cut at the time given last
    run-1.3-2.9-0.4-…                                  the same part of everything from batch 3 of generation 1 to
                                                       batch 9 of generation 2, merged

TOKEN is the generation's own (of a merged run: of the generation that merged it): a run counts only if its generation
was claimed under the same token, so what a writer leaves behind that never came to claim one is never seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from oncebus.detection import NO_HORIZON
from oncebus.ledger.generations import Generation, limits

_RUN = re.compile(r"run-(\d+)\.(\d+)-(\d+)\.(\d+)-(\d+)\.(\d+)-(\d+)-(-?\d+)(?:-(\d+))?-([0-9a-f]+)\.run")


class Position(NamedTuple):
    """A batch's place in the life of a ledger. Positions are in the order of time."""

    generation: int
    batch: int


@dataclass(frozen=True, slots=True)
class RunName:
    """What a run's name tells.

    `cut` is when Spark cut the batch, in microseconds. The checkpoint remembers it, so a repeated batch has the same;
    rows under the same batch number with another `cut` are of another batch. None where the batch has no such time.
    """

    first: Position
    last: Position
    part: int
    parts: int
    size: int
    horizon: int
    token: str
    cut: int | None = None

    def __str__(self) -> str:
        first, last = self.first, self.last
        cut = "" if self.cut is None else f"-{self.cut}"
        return (
            f"run-{first.generation}.{first.batch}-{last.generation}.{last.batch}-{self.part}.{self.parts}"
            f"-{self.size}-{self.horizon}{cut}-{self.token}.run"
        )

    def file_name(self) -> str:
        """The name to write under. Raises `ValueError` if it could not be read back: the run would never be seen."""
        text = str(self)
        if parse_run_names([text]) != [self]:
            raise ValueError(f"Run name '{text}' cannot be read back.")
        return text

    @property
    def is_merged(self) -> bool:
        """Whether it covers more than one batch."""
        return self.first != self.last

    def covers(self, other: RunName) -> bool:
        """Whether the other's entries are all here too."""
        return (
            self.is_merged
            and (self.part, self.parts) == (other.part, other.parts)
            and self.first <= other.first
            and other.last <= self.last
        )

    def may_hold_keys_of(self, part: int, parts: int) -> bool:
        """Whether a key of that part, of so many, can be here: parts may be counted differently from batch to batch."""
        return (self.part - part) % gcd(self.parts, parts) == 0


def parse_run_names(names: Iterable[str]) -> list[RunName]:
    """The runs among all files, in the order of their positions."""
    runs = []
    for name in names:
        if match := _RUN.fullmatch(name):
            *numbers, cut, token = match.groups()
            g1, b1, g2, b2, part, parts, size, horizon = map(int, numbers)
            first, last = Position(g1, b1), Position(g2, b2)
            runs.append(RunName(first, last, part, parts, size, horizon, token, int(cut) if cut else None))
    return sorted(runs, key=lambda run: (run.first, run.last, str(run)))


def visible_runs(runs: Sequence[RunName], generations: Sequence[Generation], below: Position) -> list[RunName]:
    """The runs that together hold what was accepted before the position `below`, each entry once.

    Merging never changes what they hold, so the answer means the same whichever of the files are still there.
    """
    earlier = [generation for generation in generations if generation.number <= below.generation]
    limit = limits(earlier)
    tokens = {generation.number: generation.token for generation in earlier}

    def counts(run: RunName) -> bool:
        last = run.last
        return (
            last < below
            and last.generation in limit
            and last.batch < limit[last.generation]
            and (run.is_merged or tokens[last.generation] == run.token)
        )

    counting = [run for run in runs if counts(run)]
    return without_covered(counting)


def without_covered(runs: Sequence[RunName]) -> list[RunName]:
    """The runs that no other of them covers; of two that cover the same, the first."""
    merged = [run for run in runs if run.is_merged]

    def is_covered(run: RunName) -> bool:
        for other in merged:
            if other is not run and other.covers(run) and not (run.covers(other) and str(run) < str(other)):
                return True
        return False

    return [run for run in runs if not is_covered(run)]


def horizon_of(runs: Iterable[RunName]) -> int:
    """How far time has come in these runs."""
    return max((run.horizon for run in runs), default=NO_HORIZON)
