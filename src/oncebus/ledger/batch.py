"""A batch that continues from a ledger and joins it at the end."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from oncebus.errors import OncebusError
from oncebus.ledger.generations import (
    BATCH_QUERY,
    IN_QUERY,
    CheckpointTooOld,
    Generation,
    LedgerInUse,
    Owner,
    succeed,
)
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import Position
from oncebus.ledger.writers import Writer, newest_ended, refuse_if_live, taken_over

if TYPE_CHECKING:
    from oncebus.ledger.ledger import Ledger


class NotRepeatable(OncebusError, ValueError):
    """A batch without a number where Spark may repeat it."""


_BEGUN: dict[str, tuple[str, int, str | None]] = {}
"""For each ledger, the batch of a query that this process has begun last: its query, number and run."""


class LedgerBatch:
    """One batch that continues from a ledger and joins it at the end. `Ledger.batch` makes one.

    The version of the ledger that it sees is fixed when it is created. When the block ends normally, its keys join the
    ledger, once. When an exception ends the block, they are forgotten.

    It is a generation of its own, which is claimed when it joins. Until then its runs do not count.
    """

    number = 0
    """Under which number the batch is judged."""

    def __init__(self, ledger: Ledger, clock: int) -> None:
        self.ledger = ledger
        self.clock = clock
        self.is_used = False
        self._is_over = False
        self.generation = self._version(ledger.listing())

    def __enter__(self) -> LedgerBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            if kind is None:
                self.commit()
            else:
                self.discard()

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """Called once, when a DataFrame is given to the batch and before any of it is judged.

        `is_running` tells whether a streaming query of the `owner` runs, `run` which start of a query has called
        `foreachBatch`, if that is known. Raises `LedgerInUse` beside a live writer, and `NotRepeatable` in a run.
        """
        if run is not None:
            raise NotRepeatable(
                f"Spark may repeat a call of foreachBatch, and a batch of ledger '{self.ledger.location}' without a "
                "number would then drop all its rows. Give both: Ledger.open(…).batch(query=…, batch=batch_id)."
            )
        self.is_used = True
        listing, location = self.ledger.listing(), self.ledger.location
        follows = newest_ended(listing, location, is_running, owner)
        refuse_if_live(listing, location, Writer(self.generation.token, self.generation.query, owner, follows))

    def commit(self) -> None:
        """Let the keys of this batch join the ledger.

        Raises `LedgerInUse` if another writer wrote to the ledger while the batch was open. Then nothing of the batch
        is recorded, and it can be run again.
        """
        self._is_over = True
        generation, listing = self.generation, self.ledger.listing()
        if any(other.token == generation.token for other in listing.generations):
            return
        written = {(run.part, run.parts) for run in listing.runs if run.token == generation.token}
        if self._next(listing, generation.token) != generation:
            self.discard()
            raise LedgerInUse(
                f"Ledger '{self.ledger.location}' was written by another writer while this batch was open. Nothing of "
                "the batch was recorded; run it again."
            )
        if not written:
            return
        self.ledger.claim(generation)
        for part, parts in sorted(written):
            # The batch has joined, whatever comes of this: the next writer tidies again.
            with suppress(OncebusError):
                self.ledger.tidy(generation, generation.first_batch + 1, part=part, parts=parts)

    def discard(self) -> None:
        """Forget the keys of this batch, unless it has joined."""
        self._is_over = True
        listing, token = self.ledger.listing(), self.generation.token
        if all(other.token != token for other in listing.generations):
            self.ledger.delete_runs(run for run in listing.runs if run.token == token)

    def _version(self, listing: Listing) -> Generation:
        """The generation of this batch: it says which runs the batch sees."""
        return self._next(listing, uuid.uuid4().hex)

    def _next(self, listing: Listing, token: str) -> Generation:
        return self._successor(listing, token, BATCH_QUERY + token)

    def _successor(self, listing: Listing, token: str, query: str) -> Generation:
        return succeed(
            listing.generations,
            token=token,
            query=query,
            first_batch=self.number,
            last_recorded=listing.last_recorded(),
            last_confirmed=listing.last_confirmed(),
            owner=Owner.this_process(),
            location=self.ledger.location,
        )


class QueryBatch(LedgerBatch):
    """A batch of a query, by its number. Spark may repeat it after it has joined.

    It then sees the ledger below itself again, and replaces what it has left there. The batches of a query are one
    generation, which is claimed before the first is judged; a repeated batch begins a new one. What it keeps is below
    the repeated batch, so nothing that an earlier attempt has left there counts.
    """

    def __init__(self, ledger: Ledger, clock: int, query: str, number: int) -> None:
        self.number = number
        self._query = query
        super().__init__(ledger, clock)

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """See `LedgerBatch`. The owner is this process, also where the session is another's.

        Spark repeats a batch only in a new run, so within one the same number is not that of a repeated batch.
        """
        del owner
        location = self.ledger.location
        begun = (self._query, self.number, run)
        if run is not None and _BEGUN.get(location) == begun:
            raise LedgerInUse(
                f"Ledger '{location}' has judged batch {self.number} of query '{self._query}' in this run already. "
                "Open one batch in each call of foreachBatch, under the number of that call; give a second DataFrame "
                "a ledger of its own."
            )
        self.is_used = True
        self._claim(self.ledger.listing(), is_running)
        if run is not None:
            _BEGUN[location] = begun

    def _claim(self, listing: Listing, is_running: Callable[[str], bool]) -> None:
        generation, location = self.generation, self.ledger.location
        if generation in listing.generations:
            return
        newest, ours = listing.newest, Owner.this_process()
        if newest is None or (newest.query, newest.owner) != (generation.query, ours):
            follows = newest_ended(listing, location, is_running, ours)
            refuse_if_live(listing, location, Writer(generation.token, generation.query, ours, follows))
        self.ledger.claim(generation)

    def commit(self) -> None:
        """Record that what was judged in this batch is output."""
        self._is_over = True
        if self.is_used:
            newest = self.ledger.newest()
            if newest != self.generation:
                raise taken_over(self.ledger.location, self.generation, newest or self.generation)
            self.ledger.confirm_batch(self.generation, self.number)

    def discard(self) -> None:
        """Forget what was judged in this batch."""
        self._is_over = True
        if self.is_used:
            _BEGUN.pop(self.ledger.location, None)
            here, token = Position(self.generation.number, self.number), self.generation.token
            runs = self.ledger.listing().runs
            self.ledger.delete_runs(run for run in runs if run.first == here and run.token == token)

    def _version(self, listing: Listing) -> Generation:
        query, newest = IN_QUERY + self._query, listing.newest
        if newest is not None and newest.query == query:
            last = listing.last_recorded()
            if last is not None and self.number < last:
                raise CheckpointTooOld(
                    f"Ledger '{self.ledger.location}' has batch {last} of query '{self._query}' already; batch "
                    f"{self.number} cannot be judged after it. For a new checkpoint give the query another name; for "
                    "an older one restore the ledger of the same time."
                )
            here = Position(newest.number, self.number)
            if newest.owner == Owner.this_process() and all(run.last < here for run in listing.runs):
                return newest
        return self._successor(listing, uuid.uuid4().hex, query)
