"""The ledger as its users see it. Tasks and programs use `oncebus.ledger.Ledger`, which this wraps."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from oncebus.ledger import Ledger as Files
from oncebus.ledger import LedgerBatch, LedgerCompaction, LedgerSummary, LedgerVerification, Sighting
from oncebus.spark.places import is_running


class Ledger:
    """The accepted keys at a path or URI.

    `Ledger.open` accesses neither disk nor network; the first writer creates the folder.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Ledger:
        """Return the ledger at a path, or at a URI of an object store, whether or not it exists."""
        return cls(Files.open(location))

    @property
    def location(self) -> str:
        """Return the absolute path, or the URI."""
        return self._files.location

    def exists(self) -> bool:
        """Return whether a writer has created the ledger."""
        return self._files.exists()

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
        return self._files.batch(query=query, batch=batch, checkpoint=checkpoint, take_over=take_over)

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
        return self._files.confirm(checkpoint=checkpoint)

    def summary(self) -> LedgerSummary:
        """Return how many ids, bytes and runs the ledger holds now. As text: `print(ledger.summary())`."""
        return self._files.summary()

    def verify(self) -> LedgerVerification:
        """Check every file of the ledger, and return what is wrong. Changes nothing; a query may be running.

        ```python
        for problem in Ledger.open(path).verify().problems:
            print(problem)
        ```

        Raises:
            LedgerMismatch: There is no ledger here.
        """
        return self._files.verify()

    def compact(self, *, take_over: bool = False) -> LedgerCompaction:
        """Merge the runs of the ledger, and delete keys whose window is over and files that are left over.

        No verdict changes. Writers do the same bit by bit, so this is for a ledger that is rarely written. If it is
        killed, nothing is lost. As text, the result says what was gained: `print(ledger.compact())`.

        Args:
            take_over: Treat compactions, and batches beside the query, of other machines as ended. One that is alive
                after all stops with an error, and loses nothing.

        Raises:
            LedgerInUse: A query or another writer may be writing to the ledger.
            LedgerMismatch: There is no ledger here, or one of its files is missing.
        """
        spark = SparkSession.getActiveSession()
        return self._files.compact(lambda query: spark is None or is_running(spark, query), take_over=take_over)

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
        return self._files.contains(key)

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
        return self._files.forget(keys, checkpoint=checkpoint)
