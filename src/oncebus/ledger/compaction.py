"""Compacts a ledger that nobody is writing to: merges its runs, and deletes everything that no batch needs any more.

A compaction is made of the same steps as the tidying of a writer, and may be killed at any moment. It leaves a mark
while it works: see `oncebus.ledger.aside_marks`. A writer that starts meanwhile judges as always but does not tidy, so
no two processes merge the same runs.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from oncebus.ledger.aside_marks import COMPACTION, AsideMark, open_mark
from oncebus.ledger.description import LedgerMismatch
from oncebus.ledger.generations import EVERY_BATCH, LedgerInUse, Owner, lineage, void_generation
from oncebus.ledger.joining import GIVEN_UP_SECONDS, owner_text
from oncebus.ledger.listing import Listing
from oncebus.ledger.merging import choose_compaction
from oncebus.ledger.names import RunName, horizon_of
from oncebus.ledger.storage import abandoned
from oncebus.ledger.summary import LedgerSummary
from oncebus.ledger.tidying import keeper_of, settled_runs
from oncebus.ledger.writers import refuse_while_written
from oncebus.values.durations import utc_text

if TYPE_CHECKING:
    from oncebus.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class LedgerCompaction:
    """The size of a ledger before and after a compaction."""

    before: LedgerSummary
    after: LedgerSummary

    def __str__(self) -> str:
        """Return a line such as `Before: 1,200,000 ids in 12 runs, 39.6 MB. After: 900,000 ids in 1 run, 29.7 MB.`."""
        return f"Before: {self.before.size_text()}. After: {self.after.size_text()}."


def compact(ledger: Ledger, is_running: Callable[[str], bool], *, take_over: bool = False) -> LedgerCompaction:
    """Merge the runs of a ledger, and delete forgotten entries and leftovers. A second call changes nothing.

    `is_running` returns whether a streaming query of this process is running. With `take_over`, asides and compactions
    of other machines count as ended: if one is alive after all, it stops with an error when it notices.
    Raises `LedgerInUse` if a writer, an aside or another compaction may be alive, `LedgerMismatch` if there is no whole
    ledger here, and `CorruptRun`.
    """
    ledger.description()
    # Refuse without a trace. Then look again behind the mark: a writer may have started meanwhile.
    _ended_marks(ledger, ledger.listing(), is_running, take_over=take_over)
    before = ledger.summary()
    token = uuid.uuid4().hex
    mark = _mark(token)
    ledger.mark(mark, owner_text(Owner.this_process()))
    try:
        listing = ledger.listing()
        ended = _ended_marks(ledger, listing, is_running, take_over=take_over, own=mark)
        if ended:
            # First of all: without its mark, a compaction or an aside that is alive after all stops.
            ledger.delete(ended)
        _delete_leftovers(ledger, listing)
        _compact_runs(ledger, listing, token)
    except FileNotFoundError as error:
        raise LedgerInUse(f"Ledger '{ledger.location}' was changed by another process. Compact it again.") from error
    finally:
        ledger.unmark([mark])
    return LedgerCompaction(before, ledger.summary())


def unclaimed_runs(listing: Listing) -> list[RunName]:
    """Return the runs of batches that have not joined: each is open, or its process died."""
    return [run for run in listing.runs if run.last.generation >= listing.next_number]


def leftovers(listing: Listing) -> list[str]:
    """Return the files that mean nothing any more, of ended writers and of those that died."""
    visible = set(listing.visible())
    garbage = [run for run in listing.runs if run not in visible and run.last.generation < listing.next_number]
    return [*map(str, garbage), *listing.superseded(), *abandoned(listing.stamps)]


def _mark(token: str) -> str:
    return open_mark(COMPACTION, token, EVERY_BATCH)


def _ended_marks(
    ledger: Ledger, listing: Listing, is_running: Callable[[str], bool], *, take_over: bool, own: str | None = None
) -> list[str]:
    """Return the names of marks whose process has ended. Raise `LedgerInUse` if anybody else may use the ledger."""
    if missing := listing.missing():
        # The runs of that generation would look like leftovers.
        raise LedgerMismatch(f"Ledger '{ledger.location}' lacks '{missing[0]}'. Restore the file from a backup first.")
    refuse_while_written(listing, ledger.location, is_running)
    ended = []
    for mark in listing.open_asides():
        if mark.name != own:
            if not ledger.is_given_up(mark, listing):
                _refuse_beside(ledger, listing, mark, take_over=take_over)
            ended.append(mark.name)
    return ended


def _refuse_beside(ledger: Ledger, listing: Listing, mark: AsideMark, *, take_over: bool) -> None:
    """Raise `LedgerInUse` unless the mark is of another machine, and the caller says that its process has ended."""
    found = ledger.owner_of(mark)
    is_here = found is not None and found.owner.is_alive() is not None
    if take_over and not is_here:
        return
    since = utc_text(listing.stamps[mark.name].modified_ns // 1000)
    advice = "Compact the ledger when it has ended."
    if not is_here:
        advice += " If it was killed, take over: oncebus ledger compact --take-over, or compact(take_over=True)."
    other = "Another process compacts" if mark.is_compaction else "A batch beside the query has opened"
    raise LedgerInUse(
        f"{other} ledger '{ledger.location}': {found or 'an unknown process'}, which left '{mark.name}' at "
        f"{since}. {advice}"
    )


def _delete_leftovers(ledger: Ledger, listing: Listing) -> None:
    ledger.delete(leftovers(listing))
    unclaimed = unclaimed_runs(listing)
    written = max((listing.stamps[str(run)].modified_ns for run in unclaimed), default=0)
    is_old = time.time() - written / 1e9 > GIVEN_UP_SECONDS
    # Take the number first: a batch that is alive after all is then refused when it joins, instead of losing keys.
    if unclaimed and is_old and ledger.claim_first(void_generation(listing.next_number)):
        ledger.delete_runs(unclaimed)


def _compact_runs(ledger: Ledger, listing: Listing, token: str) -> None:
    # Nobody else tidies now. So what is settled here stays as it is, although writers may start and add runs.
    visible, numbers = listing.visible(), lineage(listing.generations)
    last = max((run.last.batch for run in visible if run.last.generation in numbers), default=0)
    settled = settled_runs(visible, listing.generations, last)
    horizon, keeper = horizon_of(settled), keeper_of(settled)
    live = {run: ledger.live_size(run, horizon) for run in settled}
    expired = {run for run in settled if run != keeper and live[run] == 0}
    ledger.delete_runs(expired)
    rest = sorted((run for run in settled if run not in expired), key=lambda run: (run.parts, run.part, run.first))
    # A batch that was evaluated twice has several runs. These stay: one run of them alone would have the position of
    # that batch, and count only with its token.
    times = Counter((run.parts, run.part, run.first, run.last) for run in rest)
    compacted: list[RunName] = []
    for (_, _, is_alone), neighbours in groupby(
        rest, key=lambda run: (run.parts, run.part, times[run.parts, run.part, run.first, run.last] == 1)
    ):
        runs = list(neighbours)
        compacted += _compact_part(ledger, {run: live[run] for run in runs}, token, horizon) if is_alone else runs
    # Entries and their tombstones may have cancelled each other.
    keeper = keeper_of(compacted)
    ledger.delete_runs(run for run in compacted if run.size == 0 and run != keeper)


def _compact_part(ledger: Ledger, live: dict[RunName, int], token: str, horizon: int) -> list[RunName]:
    """Make few runs of those of one part, given in order with the numbers of their live entries. Return them."""
    while True:
        runs = list(live)
        ranges = choose_compaction(list(live.values()))
        if len(ranges) == len(runs) and all(run.size == size for run, size in live.items()):
            return runs
        made = [_made_one(ledger, [runs[at] for at in each], live, token, horizon) for each in ranges]
        live = {run: run.size for run in made}


def _made_one(ledger: Ledger, runs: Sequence[RunName], live: dict[RunName, int], token: str, horizon: int) -> RunName:
    if len(runs) == 1 and runs[0].size == live[runs[0]]:
        return runs[0]
    _refuse_if_taken_over(ledger, ledger.listing(), token)
    made = ledger.merge(runs, token, horizon) if len(runs) > 1 else ledger.rewrite(runs[0], horizon)
    listing = ledger.listing()
    if made not in listing.visible():
        _refuse_if_taken_over(ledger, listing, token)
        raise LedgerMismatch(
            f"Ledger '{ledger.location}' does not count '{made}', so the runs that it was made of stay. This is a bug "
            "in Oncebus: please report it."
        )
    ledger.delete_runs(runs)
    return made


def _refuse_if_taken_over(ledger: Ledger, listing: Listing, token: str) -> None:
    if _mark(token) not in listing.stamps:
        raise LedgerInUse(
            f"Another process has taken over the compaction of ledger '{ledger.location}'. If none is running, compact "
            "the ledger again."
        )
