"""Adds a batch, such as a backfill, to the ledger of a streaming query that keeps its turn, and may even be running.

An aside sees the batches that the query had committed when the aside began. It joins at a moment when the query is
between two batches:

1. It marks that it is about to join. From here on, every batch that the query plans waits.
2. It reads the query's checkpoint: the newest planned batch. It waits until that batch is committed.
3. It compares its keys with those that the query accepted since the aside began. If both accepted the same key less
   than a window apart, neither saw the other, and the aside is refused.
4. It claims its generation. The next batch of the query continues in a new generation, and sees the aside.

So an aside stands between two batches in the order of the ledger, and a batch of the query that is repeated sees the
same runs as before. While an aside is open, tidying leaves alone what the aside sees and what it is compared with.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from oncebus.detection import Question, Recall
from oncebus.ledger.aside_marks import joining_mark
from oncebus.ledger.batch import LedgerBatch
from oncebus.ledger.commits import BadCheckpoint, committed_in, planned_in, query_of
from oncebus.ledger.description import LedgerMismatch
from oncebus.ledger.generations import BATCH_QUERY, Generation, LedgerInUse, oldest_repeatable
from oncebus.ledger.listing import Listing
from oncebus.ledger.owner import Owner
from oncebus.ledger.run import Entries

if TYPE_CHECKING:
    from oncebus.ledger.task_ledger import TaskLedger

COMMIT_SECONDS = 600.0
"""An aside waits this long for the query to commit the batch that it has planned."""

_POLL_SECONDS = 0.05
_AT_ONCE = 1_000_000


class AsideBatch(LedgerBatch):
    """A batch beside a query. If the query has not written to the ledger yet, it is an ordinary batch."""

    def __init__(self, ledger: TaskLedger, clock: int, checkpoint: str | os.PathLike[str]) -> None:
        self._checkpoint = checkpoint
        self._query = query_of(checkpoint)
        self._is_running: Callable[[str], bool] = lambda _: True
        super().__init__(ledger, clock)

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """See `LedgerBatch`. Raises `LedgerInUse` only if the writer is not the query of the checkpoint."""
        self._refuse_in_foreach(run)
        self._is_running = is_running
        ledger, token = self.ledger, self.generation.token
        while True:
            generation = self.generation = self._next(ledger.listing(), token)
            if not generation.is_aside:
                super().begin(is_running, owner, run)
                return
            ledger.mark(generation.open_mark, Owner.this_process().to_json())
            # A task that listed the ledger before the mark may tidy runs of batches up to the oldest repeatable one.
            if oldest_repeatable(self._last_committed()) < generation.floor:
                break
            self._end()
        self.is_used = True

    def commit(self) -> None:
        """Add the keys of this batch to the ledger, between two batches of the query. Waits for the current one to end.

        Raises `LedgerInUse` if the query restarted or accepted one of the keys since the batch began, or does not
        commit its current batch. Then nothing of the batch is recorded, and you can run it again.
        """
        if not self.generation.is_aside:
            super().commit()
            return
        self._is_over = True
        token, listing = self.generation.token, self.ledger.listing()
        if not self.is_used or any(other.token == token for other in listing.generations):
            return
        try:
            # First of all: a writer that has overtaken this one may have deleted its runs.
            self._refuse_if_overtaken(listing)
            joined = self._prepare() if any(run.token == token for run in listing.runs) else None
        except BaseException:
            self.discard()
            raise
        if joined is not None and not self._claim_surely(joined):
            self.discard()
            raise self._refusal("the query continued or another writer joined meanwhile")
        self._end()

    def discard(self) -> None:
        """Forget the keys of this batch, unless they were already added."""
        # First let the query go on.
        self._end()
        super().discard()

    def _prepare(self) -> Generation:
        """Wait until the query is between two batches, and return the generation to claim."""
        ledger, generation = self.ledger, self.generation
        compared = self._last_committed()
        self._refuse_if_met(generation.floor, compared)
        ledger.mark(joining_mark(generation.number, generation.token))
        planned = -1 if (newest := planned_in(self._checkpoint)) is None else newest
        ledger.mark(joining_mark(generation.number, generation.token, planned + 1))
        self._wait_for(planned)
        listing = ledger.listing()
        self._refuse_if_overtaken(listing)
        known = max(
            (each for each in (listing.last_recorded(), listing.last_confirmed()) if each is not None), default=-1
        )
        if known > planned:
            end = "has no batch" if newest is None else f"ends with batch {newest}"
            raise BadCheckpoint(
                f"Checkpoint '{os.fspath(self._checkpoint)}' {end}, but ledger '{ledger.location}' knows batch {known} "
                "of the query. Give the checkpoint that the query uses now."
            )
        self._refuse_if_met(compared + 1, planned)
        keeps_below = planned + 1 if listing.newest is listing.main else 1
        return replace(generation, keeps_below=keeps_below, floor=planned + 1)

    def _wait_for(self, planned: int) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while self._last_committed() < planned:
            if self._has_ended() and self._last_committed() < planned:
                raise self._refusal(
                    f"query {self._query} ended in batch {planned}, which is not committed. Start the query, and then "
                    "the batch"
                )
            if time.monotonic() > deadline:
                raise self._refusal(f"query {self._query} has not committed batch {planned} in {COMMIT_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _has_ended(self) -> bool:
        """Return whether the query is known to have ended."""
        main = self.ledger.listing().main
        if main is None or main.owner is None:
            return False
        if main.owner == Owner.this_process() and not main.is_in_query:
            return not self._is_running(main.query)
        return main.owner.is_alive() is False

    def _refuse_if_overtaken(self, listing: Listing) -> None:
        generation = self.generation
        if generation.open_mark not in listing.stamps or listing.next_number != generation.number:
            raise self._refusal("the query started again, or another batch joined, while this one was open")

    def _refuse_if_met(self, first: int, last: int) -> None:
        if first <= last and self.ledger.has_met(self.generation.token, first, last):
            raise self._refusal(f"query {self._query} accepted some of the same keys while the batch was open")

    def _refusal(self, why: str) -> LedgerInUse:
        return LedgerInUse(
            f"The batch could not join ledger '{self.ledger.location}': {why}. Nothing of the batch was recorded; run "
            "it again."
        )

    def _end(self) -> None:
        """Remove the marks."""
        number, token = self.generation.number, self.generation.token
        marks = [mark.name for mark in self.ledger.listing().asides if mark.token == token]
        self.ledger.unmark([*marks, joining_mark(number, token)])

    def _last_committed(self) -> int:
        """Return the newest committed batch of the query, or -1."""
        found = committed_in(self._checkpoint)
        return -1 if found is None else found.batch

    def _version(self, listing: Listing) -> Generation:
        return self._next(listing, uuid.uuid4().hex)

    def _next(self, listing: Listing, token: str) -> Generation:
        main, newest = listing.main, listing.newest
        if main is None or newest is None or main.is_batch:
            return super()._next(listing, token)
        # In foreachBatch, the caller has chosen the name of the query, which says nothing about its checkpoint.
        if not main.is_in_query and main.query != self._query:
            raise LedgerMismatch(
                f"Ledger '{self.ledger.location}' was last written by query {main.query}, but checkpoint "
                f"'{os.fspath(self._checkpoint)}' belongs to query {self._query}."
            )
        below = self._last_committed() + 1
        keeps_below = below if newest is main else 1
        owner = Owner.this_process()
        number, query = listing.next_number, BATCH_QUERY + token
        return Generation(number, token, query, 0, keeps_below, below, owner, is_aside=True)


def meets(entries: Entries, recall: Recall) -> bool:
    """Return whether one of the entries is less than a window away from a remembered one with the same key."""
    for begin in range(0, len(entries), _AT_ONCE):
        some = entries.take(np.arange(begin, min(begin + _AT_ONCE, len(entries))))
        window = some.window()
        found = recall(Question(some.high, some.low, some.time - window + 1, some.time + window - 1))
        apart = np.abs(some.time[found.key] - found.time)
        if (apart < np.minimum(window[found.key], found.window)).any():
            return True
    return False
