"""Merges, rewrites and deletes the runs of a ledger. Never changes a verdict.

Only *settled* runs are touched: those that every batch sees that can still run. A new run is published before the old
ones are deleted, so a reader or a crash in between finds one or the other, or both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from oncebus.detection import NO_HORIZON
from oncebus.ledger.aside_marks import AsideMark, is_given_up
from oncebus.ledger.generations import REPEATABLE_BATCHES, Generation, LedgerInUse, lineage
from oncebus.ledger.ledger_files import LedgerFiles
from oncebus.ledger.listing import Listing
from oncebus.ledger.merging import choose_merge, choose_rewrite, merge
from oncebus.ledger.names import LANES, Position, RunName, horizon_of, visible_runs
from oncebus.ledger.run import Entries, encode_run


class LedgerTidying(LedgerFiles):
    """The files of a ledger, which its writers tidy after each batch."""

    def tidy(self, generation: Generation, batch: int, *, part: int, parts: int) -> None:
        """Delete the runs that this part no longer needs, and merge or rewrite old ones. Never changes a verdict.

        Keeps everything that a repeated batch may read: runs of the newest batches are neither merged nor deleted.
        Raises `LedgerInUse` if rows of two different batches were judged under this number.
        """
        listing = self._list()
        if listing.newest is not None and listing.newest.number > generation.number:
            # The query went back to an earlier batch, which may still need runs that look settled from here.
            return
        if batch < (listing.last_batch_of(generation) or 0):
            # A later batch has begun, and tidies what this one would.
            return
        # Check again: two batches with one number may both have listed the folder before either published.
        self._refuse_other_cuts(listing, generation, batch, set())
        here = Position(generation.number, batch)
        visible = self._visible(listing, generation, here)
        ours = [run for run in listing.runs if _is_tidied_by(run, part, parts) and run.last < here]
        garbage = set(ours) - set(visible)
        spared = self._first_spared_batch(listing)

        earlier = [other for other in listing.generations if other.number < generation.number]
        settled = _settled_runs(visible, [*earlier, generation], batch)
        horizon, keeper = horizon_of(settled), _keeper_of(settled)
        settled = [run for run in settled if _is_tidied_by(run, part, parts)]
        if spared is not None:
            # An aside sees the batches below this one, and is compared with the later ones when it joins.
            since = Position(generation.number, spared)
            settled, horizon = [run for run in settled if run.first >= since], NO_HORIZON
        try:
            expired = {run for run in settled if run != keeper and self._is_expired(run, horizon)}
            # In this order. A merged run may be expired although an entry of the runs that it covers is not: a
            # tombstone has cancelled it. Without the merged run, that entry would count again.
            self._storage.delete([*map(str, garbage), *listing.superseded_files()])
            self._storage.delete(map(str, expired))
            mergeable = _by_position(run for run in settled if run.parts == parts and run not in expired)
            chosen = choose_merge([sum(run.size for run in runs) for runs in mergeable])
            if chosen is not None:
                self._merge([run for at in chosen for run in mergeable[at]], generation.token, horizon)
                return
            rest = [run for run in settled if run.size and run not in expired]
            sparse = choose_rewrite([(run.size, self._run(run).mostly_forgotten_from) for run in rest], horizon)
            if sparse is not None:
                self._rewrite(rest[sparse], horizon)
        except FileNotFoundError:
            # A second evaluation of the same part is tidying too. The next batch continues from what it left.
            return

    def _merge(self, names: Sequence[RunName], token: str, horizon: int) -> None:
        """Publish one run in place of neighbouring runs of one part, without entries forgotten at the horizon."""
        entries = self._merge_remembered(names, horizon)
        first, last, reached = names[0], names[-1], horizon_of(names)
        name = RunName(first.first, last.last, first.part, first.parts, len(entries), reached, token)
        self._storage.publish(name.file_name(), encode_run(entries, reached))

    def _rewrite(self, name: RunName, horizon: int) -> None:
        """Publish a run again, without entries forgotten at the horizon."""
        entries = self._merge_remembered([name], horizon)
        rewritten = name.rewritten(len(entries))
        self._storage.publish(rewritten.file_name(), encode_run(entries, name.horizon))

    def _is_expired(self, name: RunName, horizon: int) -> bool:
        """Return whether every entry of the run is forgotten at the horizon."""
        return name.size == 0 or self._run(name).forgotten_from <= horizon

    def delete_runs(self, runs: Iterable[RunName]) -> None:
        """Delete runs that no batch uses."""
        names = [str(run) for run in runs]
        for name in names:
            self._open_runs.pop(name, None)
        self._storage.delete(names)

    def is_given_up(self, mark: AsideMark, listing: Listing) -> bool:
        """Return whether the open aside with this mark has ended."""
        try:
            return is_given_up(bytes(self._storage.read(mark.name)), listing.stamps[mark.name])
        except FileNotFoundError:
            return True

    def _first_spared_batch(self, listing: Listing) -> int | None:
        """Return the batch below which an open aside needs the runs as they are; None if no aside is open."""
        spared = []
        for mark in listing.open_asides():
            if self.is_given_up(mark, listing):
                # First delete the mark: without it, an aside that is still alive after all cannot join.
                self._storage.delete([mark.name])
            else:
                spared.append(mark.batch or 0)
        return min(spared, default=None)

    def _refuse_other_cuts(
        self, listing: Listing, generation: Generation, batch: int, own: Collection[int | None]
    ) -> None:
        here = Position(generation.number, batch)
        found = {run.cut for run in listing.runs if run.first == here and run.token == generation.token}
        if len(found.union(own)) > 1:
            raise LedgerInUse(
                f"Ledger '{self.location}' has different rows as batch {batch} of query {generation.query}. In "
                "foreachBatch, evaluate only the DataFrame of this call, before it returns, and create new threads for "
                "each call. If the query's checkpoint was restored, call detect_duplicates again."
            )

    def _visible(self, listing: Listing, generation: Generation, below: Position) -> list[RunName]:
        earlier = [other for other in listing.generations if other.number < generation.number]
        return visible_runs(listing.runs, [*earlier, generation], below)

    def _merge_remembered(self, names: Sequence[RunName], horizon: int) -> Entries:
        """Return the entries of these runs that are not forgotten at the horizon."""
        runs = [self._run(name) for name in names]
        for run in runs:
            run.verify()
        return merge([run.entries() for run in runs], horizon)


def _settled_runs(visible: Sequence[RunName], generations: Sequence[Generation], last: int) -> list[RunName]:
    """Return the visible runs that every batch sees that can still run.

    The generations must be in order. `last` is the newest batch of the last one, whose query may repeat some batches.
    """
    numbers = lineage(generations)
    newest = last - REPEATABLE_BATCHES
    return [run for run in visible if run.last.generation not in numbers or run.last.batch <= newest]


def _keeper_of(settled: Sequence[RunName]) -> RunName | None:
    """Return the run to keep even if all its entries are forgotten: the horizon of the ledger must survive.

    Every part must pick the same run.
    """
    return max(settled, key=lambda run: (run.horizon, run.last, run.part, str(run)), default=None)


def _by_position(runs: Iterable[RunName]) -> list[list[RunName]]:
    """Return the runs in lists of those with the same position, in the same order.

    A batch that was evaluated twice may have several runs. A merge must take all of them or none, because it covers
    everything at their position.
    """
    return [list(same) for _, same in groupby(runs, key=lambda run: (run.first, run.last))]


def _is_tidied_by(run: RunName, part: int, parts: int) -> bool:
    """Return whether the task of this part tidies the run. Of lanes, the first also tidies what is not in lanes."""
    if parts != LANES:
        return run.part % parts == part
    return run.part == part if run.parts == LANES else part == 0
