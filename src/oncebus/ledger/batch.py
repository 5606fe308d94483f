"""Runs one batch against a ledger: it sees the keys accepted so far, and its own keys are added when it ends."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from oncebus.ledger.generations import BATCH_QUERY, IN_QUERY, CheckpointTooOld, Generation, LedgerInUse, succeed
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import Position
from oncebus.ledger.owner import Owner
from oncebus.ledger.storage import StorageError
from oncebus.ledger.writers import Writer, belongs_to_query, find_predecessor, refuse_unless_next, taken_over
from oncebus.values.errors import OncebusError

if TYPE_CHECKING:
    from oncebus.ledger.task_ledger import TaskLedger


class NotRepeatable(OncebusError, ValueError):
    """The batch has no number, but Spark may repeat it, as it does in `foreachBatch`."""


_BEGUN: dict[str, tuple[str, int, str | None]] = {}
"""The last batch of a query that this process began, for each ledger: query, number and run."""


class LedgerBatch:
    """One batch that runs against a ledger. `Ledger.batch` creates one.

    The batch sees the ledger as it was when the batch was created. When its `with` block ends normally, its keys are
    added to the ledger, once. When an exception ends the block, its keys are forgotten.

    The batch is a generation of its own. It claims the generation when its keys are added; until then its runs are
    ignored.
    """

    number = 0
    """The batch number that appears in the names of its runs."""

    parts: int | None = None
    """The number of parts that the query of the batch keeps. May be set before `begin`."""

    drops_over = False
    """Whether its runs leave out the keys that no later batch remembers."""

    def __init__(self, ledger: TaskLedger, clock: int, *, takes_over: bool = False) -> None:
        self.ledger = ledger
        self._takes_over = takes_over
        self.clock = clock
        self.is_used = False
        self._is_over = False
        self.generation = self._version(self._listing())

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
        """Prepare the batch for its DataFrame. Called once, before any row is judged.

        `is_running` returns whether a streaming query of the `owner` is running. `run` is the run id of the query that
        is calling `foreachBatch`, if known. Raises `LedgerInUse` if another writer is alive, and `NotRepeatable` inside
        `foreachBatch`. Also raises `LedgerInUse` if the ledger belongs to a query, which could not continue, unless the
        batch is to take it over.
        """
        self._refuse_in_foreach(run)
        self.is_used = True
        listing, location = self.ledger.listing(), self.ledger.location
        follows = find_predecessor(listing, location, is_running, owner)
        if listing.main is not None and not listing.main.is_batch and not self._takes_over:
            raise belongs_to_query(location, listing.main)
        refuse_unless_next(listing, location, Writer(self.generation.token, self.generation.query, owner, *follows))

    def _refuse_in_foreach(self, run: str | None) -> None:
        if run is not None:
            raise NotRepeatable(
                f"Spark may repeat a call of foreachBatch, and a batch of ledger '{self.ledger.location}' without a "
                "number would then drop all its rows. Give query and batch: Ledger.open(…).batch(query=…, "
                "batch=batch_id)."
            )

    def commit(self) -> None:
        """Add the keys of this batch to the ledger.

        Raises `LedgerInUse` if another writer wrote to the ledger while the batch was open. Then nothing of the batch
        is recorded, and you can run it again.
        """
        self._is_over = True
        generation, listing = self.generation, self.ledger.listing()
        if any(other.token == generation.token for other in listing.generations):
            return
        written = {(run.part, run.parts) for run in listing.runs if run.token == generation.token}
        if self._next(listing, generation.token) != generation or (written and not self._claim_surely(generation)):
            self.discard()
            raise LedgerInUse(
                f"Another writer wrote to ledger '{self.ledger.location}' while this batch was open. Nothing of "
                "the batch was recorded; run it again."
            )
        for part, parts in sorted(written):
            # The batch has joined even if tidying fails: the next writer tidies again.
            with suppress(OncebusError):
                self.ledger.tidy(generation, generation.first_batch + 1, part=part, parts=parts)

    def _claim_surely(self, generation: Generation) -> bool:
        """Claim the generation, and return whether the batch has joined.

        Raises `StorageError` if the storage failed. Its text says so if nobody knows whether the batch has joined.
        """
        ledger = self.ledger
        try:
            return ledger.claim_first(generation)
        except StorageError as error:
            # The claim may be there all the same.
            try:
                has_joined = ledger.settle(generation)
            except StorageError:
                raise StorageError(
                    f"{error}. It is not known whether the batch has joined. If oncebus ledger show has a batch of "
                    f"process {os.getpid()} as the last writer, it has: do not run it again."
                ) from error
            if not has_joined:
                self.discard()
                raise
            return True

    def discard(self) -> None:
        """Forget the keys of this batch, unless they were already added."""
        self._is_over = True
        listing, token = self.ledger.listing(), self.generation.token
        if all(other.token != token for other in listing.generations):
            self.ledger.delete_runs(run for run in listing.runs if run.token == token)

    def remembered(self) -> int:
        """Return how many keys the runs hold that the batch has written so far."""
        return sum(run.size for run in self.ledger.listing().runs if run.token == self.generation.token)

    def _listing(self) -> Listing:
        """Return the files of the ledger that this batch begins with."""
        return self.ledger.listing()

    def _version(self, listing: Listing) -> Generation:
        """Return the generation of this batch. It determines which runs the batch sees."""
        return self._next(listing, uuid.uuid4().hex)

    def _next(self, listing: Listing, token: str) -> Generation:
        return self._successor(listing, token, BATCH_QUERY + token)

    def _successor(self, listing: Listing, token: str, query: str) -> Generation:
        return succeed(
            listing.generations,
            number=listing.next_number,
            token=token,
            query=query,
            first_batch=self.number,
            last_recorded=listing.last_recorded(),
            last_confirmed=listing.last_confirmed(),
            owner=Owner.this_process(),
            location=self.ledger.location,
        )


class QueryBatch(LedgerBatch):
    """A numbered batch of a query. Spark may repeat it even after its keys were added.

    A repeated batch does not see its own earlier keys, and replaces them. All batches of a query share one generation,
    which is claimed before the first batch is judged. A repeated batch begins a new generation that keeps only the
    batches below it, so the runs of the earlier attempt are ignored.
    """

    def __init__(self, ledger: TaskLedger, clock: int, query: str, number: int) -> None:
        self.number = number
        self._query = query
        super().__init__(ledger, clock)

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """See `LedgerBatch`. The owner is always this process, even if the session belongs to another process.

        Raises `LedgerInUse` if this run of the query has already judged a batch with this number, because Spark repeats
        a batch only in a new run.
        """
        del owner
        location = self.ledger.location
        begun = (self._query, self.number, run)
        if run is not None and _BEGUN.get(location) == begun:
            raise LedgerInUse(
                f"Ledger '{location}' has judged batch {self.number} of query '{self._query}' in this run already. "
                "Open one batch in each call of foreachBatch, with the number of that call. A second DataFrame needs a "
                "ledger of its own."
            )
        self.is_used = True
        self._claim(self.ledger.listing(), is_running)
        if run is not None:
            _BEGUN[location] = begun

    def _listing(self) -> Listing:
        return self.ledger.wait_for_asides(self.number)

    def _claim(self, listing: Listing, is_running: Callable[[str], bool]) -> None:
        generation, location = self.generation, self.ledger.location
        if generation in listing.generations:
            return
        self.generation = generation = replace(generation, parts=self.parts or generation.parts)
        newest, ours = listing.main, Owner.this_process()
        if newest is None or (newest.query, newest.owner) != (generation.query, ours):
            follows = find_predecessor(listing, location, is_running, ours)
            refuse_unless_next(listing, location, Writer(generation.token, generation.query, ours, *follows))
        self.ledger.claim(generation)

    def commit(self) -> None:
        """Record that the output of this batch is committed."""
        self._is_over = True
        if self.is_used:
            newest = self.ledger.newest()
            if newest != self.generation:
                raise taken_over(self.ledger.location, self.generation, newest or self.generation)
            self.ledger.confirm_batch(self.generation, self.number)

    def discard(self) -> None:
        """Forget the keys that this batch has accepted."""
        self._is_over = True
        if self.is_used:
            _BEGUN.pop(self.ledger.location, None)
            here, token = Position(self.generation.number, self.number), self.generation.token
            runs = self.ledger.listing().runs
            self.ledger.delete_runs(run for run in runs if run.first == here and run.token == token)

    def _version(self, listing: Listing) -> Generation:
        query, newest = IN_QUERY + self._query, listing.main
        if newest is not None and newest.query == query:
            last = listing.last_recorded()
            if last is not None and self.number < last:
                raise CheckpointTooOld(
                    f"Ledger '{self.ledger.location}' has batch {last} of query '{self._query}' already; batch "
                    f"{self.number} cannot come after it. For a new checkpoint, give the query another name; for an "
                    "older checkpoint, restore the ledger from the same time."
                )
            here = Position(newest.number, self.number)
            is_ours = newest is listing.newest and newest.owner == Owner.this_process()
            # The generation sees all batches below its first one.
            if is_ours and newest.first_batch <= self.number and all(run.last < here for run in listing.runs):
                return newest
        return self._successor(listing, uuid.uuid4().hex, query)
