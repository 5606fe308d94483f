"""Parses the names of a ledger's files, and selects the runs that a batch sees. It looks only at names.

    ledger.json                                        the key columns and the id of the ledger
    generation-000002.json                             see `oncebus.ledger.generations`
    confirmed-000002-17                                batch 17 of generation 2 is known to be committed
    aside-000003-…                                     see `oncebus.ledger.aside_marks`
    run-2.17-2.17-0.4-50000.71-1731700000000000-TOKEN.run
                                                       the keys accepted by generation 2 in batch 17, part 0 of 4:
                                                       50000 entries with the checksum 71, horizon 1731700000000000
    run-2.17-2.17-0.4-50000.71-1731…-1731…-TOKEN.run   the same, of a batch that Spark cut at the second time
    run-2.17-2.17-0.4-100.71-…                         the same run, rewritten with the 100 entries that are
                                                       not forgotten
    run-1.3-2.9-0.4-80000-…                            the same part of everything from batch 3 of generation 1 to
                                                       batch 9 of generation 2, merged: 80000 entries

A batch outside a query may be evaluated twice while its source changes. It then has several runs of one part, and all
of them count. The checksum tells them apart: without it, one could replace the other.

A part may also be a partition of input that was partitioned by the key already. Its number of parts is then `LANES`, a
prime that no other number of parts reaches, and it may hold any key.

TOKEN is the token of the generation, or for a merged run of the generation that merged it. A run counts only if its
generation was claimed with the same token. So runs of a writer that never claimed a generation are never seen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from operator import itemgetter
from typing import NamedTuple

from oncebus.detection import NO_HORIZON
from oncebus.ledger.generations import Generation, limits
from oncebus.values.errors import OncebusError

_RUN = re.compile(r"run-(\d+)\.(\d+)-(\d+)\.(\d+)-(\d+)\.(\d+)-(\d+)(?:\.(\d+))?-(-?\d+)(?:-(\d+))?-([0-9a-f]+)\.run")


LANES = 257
"""The number of parts in the name of a run whose part is a partition of the input: a *lane*."""


class NotPartitioned(OncebusError):
    """Input that should be partitioned by the key has a key in two partitions, or has too many partitions."""


def not_partitioned(batch: int, lane: int, *, is_same_lane: bool) -> NotPartitioned:
    """Return the error for a lane with a key that another run of the batch has too."""
    if is_same_lane:
        return NotPartitioned(
            f"Partition {lane} of batch {batch} was evaluated twice, with different rows that share a key. Persist the "
            "input, so that it is evaluated once, or call detect_duplicates without partitioned=True."
        )
    return NotPartitioned(
        f"Partition {lane} of the input has a key that another partition of batch {batch} has too, so the input is not "
        "partitioned by the key. Call detect_duplicates without partitioned=True."
    )


class Position(NamedTuple):
    """The position of a batch in the history of a ledger. Earlier positions compare as lower."""

    generation: int
    batch: int


@dataclass(frozen=True, slots=True)
class RunName:
    """The fields in the name of a run.

    `cut` is the time at which Spark cut the batch, in microseconds; None if there is no such time. The checkpoint
    records it, so a repeated batch has the same one; rows with the same batch number and another `cut` belong to
    another batch. `origin` is the checksum of the entries of a batch, which stays when the run is rewritten; None in
    a merged run.
    """

    first: Position
    last: Position
    part: int
    parts: int
    size: int
    horizon: int
    token: str
    cut: int | None = None
    origin: int | None = None

    def __str__(self) -> str:
        first, last = self.first, self.last
        size = str(self.size) if self.origin is None else f"{self.size}.{self.origin}"
        cut = "" if self.cut is None else f"-{self.cut}"
        return (
            f"run-{first.generation}.{first.batch}-{last.generation}.{last.batch}-{self.part}.{self.parts}"
            f"-{size}-{self.horizon}{cut}-{self.token}.run"
        )

    def file_name(self) -> str:
        """Return the name of the run's file.

        Raises `ValueError` if the name could not be parsed, since nobody would see the run.
        """
        text = str(self)
        if parse_run_names([text]) != [self]:
            raise ValueError(f"Run name '{text}' could not be parsed again.")
        return text

    @property
    def is_merged(self) -> bool:
        """Return whether the run covers more than one batch."""
        return self.first != self.last

    @property
    def is_of_batch(self) -> bool:
        """Return whether the run may be of a batch outside a query, which has one batch with the number 0."""
        return self.last.batch == 0 and self.cut is None and not self.is_merged

    def rewritten(self, size: int) -> RunName:
        """Return the name of this run after a rewrite that leaves `size` entries."""
        return replace(self, size=size)

    def covers(self, other: RunName) -> bool:
        """Return whether this run has all entries of the other run that are not forgotten."""
        if (self.part, self.parts) != (other.part, other.parts):
            return False
        if (self.first, self.last) != (other.first, other.last):
            return self.is_merged and self.first <= other.first and other.last <= self.last
        if self.is_merged:
            # The smaller one was merged later, and lacks only forgotten entries.
            return (self.size, str(self)) < (other.size, str(other))
        # A batch that was evaluated twice may have several runs, which differ in what a rewrite keeps.
        return self._kind == other._kind and self.size < other.size

    @property
    def _kind(self) -> tuple[int | None, int, int | None, str]:
        """What tells runs of one position apart, whether rewritten or not."""
        return self.origin, self.horizon, self.cut, self.token

    def may_hold_keys_of(self, part: int, parts: int) -> bool:
        """Return whether the run may hold keys of this part. The number of parts may differ between batches.

        A lane may hold any key: the source may have been partitioned differently before.
        """
        return LANES in (self.parts, parts) or (self.part - part) % gcd(self.parts, parts) == 0


def parse_run_names(names: Iterable[str]) -> list[RunName]:
    """Return the runs among all file names, in the order of their positions."""
    runs = [(run.first, run.last, name, run) for name in names if (run := _parse(name)) is not None]
    return [run for *_, run in sorted(runs, key=itemgetter(0, 1, 2))]


@lru_cache(maxsize=1 << 15)
def _parse(name: str) -> RunName | None:
    """Return the run with this file name; None if it is not that of a run.

    Every task lists all files, and nearly all of them were there before.
    """
    match = _RUN.fullmatch(name)
    if match is None:
        return None
    *numbers, origin, horizon, cut, token = match.groups()
    g1, b1, g2, b2, part, parts, size = map(int, numbers)
    return RunName(
        Position(g1, b1),
        Position(g2, b2),
        part,
        parts,
        size,
        int(horizon),
        token,
        cut=int(cut) if cut else None,
        origin=int(origin) if origin else None,
    )


def visible_runs(runs: Sequence[RunName], generations: Sequence[Generation], below: Position) -> list[RunName]:
    """Return the runs that together hold everything accepted before the position `below`, each entry once.

    Merging and rewriting drop only forgotten entries. So it does not matter whether the old files, the new files or
    both exist.
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
    """Return the runs that no other run covers, in the same order.

    Compares only runs of the same part and the same batches with each other. A large ledger has thousands of runs, and
    every task calls this.
    """
    by_range: dict[tuple[int, int], dict[tuple[Position, Position], list[RunName]]] = defaultdict(dict)
    for run in runs:
        by_range[run.parts, run.part].setdefault((run.first, run.last), []).append(run)
    covered: set[RunName] = set()
    for ranges in by_range.values():
        # From the first range to the last; of ranges that begin together, the widest comes first. So every range that
        # contains this one comes before it.
        reached = None
        for first, last in sorted(sorted(ranges, key=itemgetter(1), reverse=True), key=itemgetter(0)):
            same = ranges[first, last]
            if reached is not None and last <= reached:
                covered.update(same)
            elif len(same) > 1:
                covered.update(run for run in same if any(other.covers(run) for other in same))
            if first != last:
                reached = last if reached is None else max(reached, last)
    return [run for run in runs if run not in covered] if covered else list(runs)


def horizon_of(runs: Iterable[RunName]) -> int:
    """Return the greatest horizon of these runs; `NO_HORIZON` if there are none."""
    return max((run.horizon for run in runs), default=NO_HORIZON)
