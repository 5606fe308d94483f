"""The ledger as its users see it: open it, give batches to it, and look inside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from html import escape
from typing import Any, Self

import numpy as np

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Rows
from oncebus.detection.values import Keys
from oncebus.ledger.asides import AsideBatch
from oncebus.ledger.batch import LedgerBatch, QueryBatch
from oncebus.ledger.check import LedgerCheck, check
from oncebus.ledger.commits import committed_in
from oncebus.ledger.description import FILE_NAME
from oncebus.ledger.keys import KeyColumn, key_columns, key_digests
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import horizon_of
from oncebus.ledger.overview import LedgerOverview, LedgerSummary, overview_of, windows_of
from oncebus.ledger.overview_texts import overview_html
from oncebus.ledger.owner import Owner
from oncebus.ledger.run import RecallFrom
from oncebus.ledger.seeding import SeedBatch
from oncebus.ledger.sightings import Memory, Sighting, sightings_in
from oncebus.ledger.storage import storage_at
from oncebus.ledger.task_ledger import TaskLedger, at_any_time
from oncebus.values.errors import OncebusError

_ANY_WINDOW = -1
"""A negative window makes a row a forget. How long it is does not matter: a forget concerns all times."""


class Ledger(TaskLedger):
    """The accepted keys at a path or URI.

    `Ledger.open` accesses neither disk nor network; the first writer creates the folder.
    """

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Self:
        """Return the ledger at a path, or at a URI of an object store, whether or not it exists."""
        return cls(storage_at(location))

    def exists(self) -> bool:
        """Return whether a writer has created the ledger."""
        return FILE_NAME in self._storage.names()

    def batch(
        self,
        *,
        query: str | None = None,
        batch: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        take_over: bool = False,
    ) -> LedgerBatch:
        """Start a batch that sees the keys the ledger holds now.

        Its own keys are added when the block ends without an error.

        ```python
        with Ledger.open(path).batch() as ledger:
            detect_duplicates(messages, …, ledger=ledger).write.parquet(out)
        ```

        Inside `foreachBatch`, give `query` and `batch`. If Spark repeats a batch, it then sees what the ledger held
        before its first attempt, and gets the same verdicts.

        To add a batch, such as a backfill, to the ledger of a streaming query, give the query's checkpoint. The query
        may run meanwhile, or continue later: its batches that are planned after the block has ended see the new keys.

        Args:
            query: A name for the checkpoint. It must stay the same while the checkpoint does, and change with it. The
                query's id does this, and so does any name you choose.
            batch: The number of the batch, as Spark gives it to `foreachBatch`.
            checkpoint: The `checkpointLocation` of the streaming query that uses this ledger and keeps its turn.
            take_over: Take the ledger from a query that has ended and is given up: it cannot continue from its
                checkpoint. Without this, such a batch raises `LedgerInUse` when `detect_duplicates` is called.
        """
        clock = time.time_ns() // 1000
        if take_over and (checkpoint, query, batch) != (None, None, None):
            raise ValueError("Give take_over alone: a batch with a checkpoint or a query takes nothing over.")
        if checkpoint is not None:
            if query is not None or batch is not None:
                raise ValueError("Give either a checkpoint, outside foreachBatch, or a query and a batch, inside it.")
            return AsideBatch(self, clock, checkpoint)
        if query is None and batch is None:
            return LedgerBatch(self, clock, takes_over=take_over)
        if query is None or batch is None or batch < 0:
            raise ValueError(f"Query is {query!r} and batch is {batch!r}: give both, with a batch number of 0 or more.")
        return QueryBatch(self, clock, query, batch)

    def seed_batch(self, fingerprint: str) -> SeedBatch:
        """Start a batch for the rows of a table that go on where a killed one with this fingerprint stopped."""
        return SeedBatch(self, time.time_ns() // 1000, fingerprint)

    def confirm(self, *, checkpoint: str | os.PathLike[str]) -> int | None:
        """Record, according to its checkpoint, which output of the last query is committed.

        A later query with another checkpoint then knows all keys of those batches. Without this call, the keys of the
        last batch count as never output. You can call it at any time, even while the query runs.

        Args:
            checkpoint: The query's `checkpointLocation`.

        Returns:
            The number of the newest committed batch, or None if no batch is committed yet.

        Raises:
            LedgerMismatch: The checkpoint belongs to another query than the last one.
        """
        committed = committed_in(checkpoint)
        if committed is not None:
            self.record_committed(committed)
        return None if committed is None else committed.batch

    def summary(self) -> LedgerSummary:
        """Return how many ids, bytes and runs the ledger holds now. As text: `print(ledger.summary())`."""
        return LedgerSummary.of(self._list())

    def check(self) -> LedgerCheck:
        """Check every file of the ledger, and return what is wrong. Changes nothing; a query may be running.

        ```python
        for problem in Ledger.open(path).check().problems:
            print(problem)
        ```

        Raises:
            LedgerMismatch: There is no ledger here.
        """
        return check(self._storage)

    def contains(self, *key: Any) -> Sighting | None:
        """Return what the ledger remembers about a key; None if it was not accepted, or its time is over.

        ```python
        if entry := Ledger.open(path).contains("order-17"):
            print(entry)  # new at 2026-01-31T08:30:00Z, until the ledger has seen 2026-01-31T08:40:00Z
        ```

        Args:
            key: A value for each column of the key, in their order.

        Returns:
            The newest row with the key that was new: its `time`, its `sequence` number or None, and `until`, the time
            that ends its window plus lateness. Times are in microseconds since 1970.

        Raises:
            BadKey: The key does not fit the key columns.
            LedgerMismatch: There is no ledger here, or it is not one of `detect_duplicates`.
        """
        return next((each for each in reversed(self.find(key)) if each.memory is Memory.REMEMBERED), None)

    def find(self, key: Any) -> list[Sighting]:
        """Return the rows with a key that were new, as far as the ledger still has them, in the order of time."""
        high, low = key_digests([key], self.key_columns(), self.secret())

        def search(listing: Listing) -> list[Sighting]:
            visible = listing.visible()
            runs = [self._run(name) for name in visible if name.size]
            return sightings_in(RecallFrom(runs)(at_any_time(high, low)), horizon_of(visible))

        return self._read_steadily(search, "a search")

    def overview(self) -> LedgerOverview:
        """Return what the ledger is and holds, for people. Reads the times of all entries."""
        description = self.description()
        return self._read_steadily(lambda listing: overview_of(listing, self._storage, description), "an overview")

    def _repr_html_(self) -> str:
        """Return the overview as tables, which notebooks show; one line if there is no ledger here."""
        try:
            return overview_html(self.location, self.overview())
        except OncebusError as error:
            return f"<p>{escape(str(error))}</p>"

    def windows(self) -> set[int]:
        """Return the windows under which the ledger remembers keys, in microseconds."""
        return self._read_steadily(lambda listing: windows_of(listing, self._storage), "a search")

    def forget(self, keys: Iterable[Any], *, checkpoint: str | os.PathLike[str] | None = None) -> int:
        """Forget keys before their window is over: the next row with such a key is new.

        This is a small batch of its own. It is durable and visible to later batches when this returns. Rows that were
        judged before keep their verdicts.

        ```python
        Ledger.open(path).forget(["order-17"])
        Ledger.open(path).forget([("order-17", 3)])  # with two key columns
        ```

        Args:
            keys: The keys: for one key column its values, for several a tuple for each key, in their order. Values have
                the types of the columns.
            checkpoint: The `checkpointLocation` of the streaming query that uses this ledger and keeps its turn: see
                `batch`. The batches that the query plans later have forgotten the keys.

        Returns:
            How many of the keys were remembered.

        Raises:
            BadKey: A key does not fit the key columns.
            LedgerInUse: The ledger belongs to a query, or another writer is writing to it.
            LedgerMismatch: There is no ledger here, or it is not one of `detect_duplicates`.
        """
        high, low = key_digests(list(keys), self.key_columns(), self.secret())
        return self._forget(self.batch(checkpoint=checkpoint), high, low)

    def _forget(self, batch: LedgerBatch, high: Keys, low: Keys) -> int:
        """Forget keys, given by the halves of their digests, in an open batch of its own, which adds tombstones.

        The batch is discarded if none was remembered. So a forget without effect leaves no trace.
        """
        batch.begin(lambda _: True, Owner.this_process())
        # The time of a forget must not move the horizon, so that no other key is forgotten.
        horizon = self.listing().horizon()
        if len(high) == 0 or horizon == NO_HORIZON:
            batch.discard()
            return 0
        size = len(high)
        window = np.full(size, _ANY_WINDOW, np.int64)
        rows = Rows(
            high,
            low,
            np.ones(size, np.bool_),
            np.full(size, horizon, np.int64),
            window,
            window,
            np.full(size, NO_SEQUENCE, np.int64),
            lambda chosen: chosen.astype(np.int64),
        )
        # Spark chose the parts of the keys, by the values of their columns. One part of one holds keys of all parts.
        decision = self.decide(rows, batch.generation, batch.number, part=0, parts=1, clock=horizon)
        tombstones = decision.verdicts.tombstones
        if tombstones is None:
            batch.discard()
            return 0
        decision.publish()
        batch.commit()
        return len(np.unique(np.stack([tombstones.high, tombstones.low], axis=1), axis=0))

    def key_columns(self) -> list[KeyColumn]:
        """Return the key columns. Raises `LedgerMismatch` if there is no ledger of `detect_duplicates` here."""
        return key_columns(self.description().key, self.location)
