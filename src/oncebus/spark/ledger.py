"""The ledger as users of Spark see it: with what needs a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame

from oncebus import ledger
from oncebus.spark.seeding import Seeded, seed_ledger


class Ledger(ledger.Ledger):
    """The accepted keys at a path or URI.

    `Ledger.open` accesses neither disk nor network; the first writer creates the folder.
    """

    def seed(
        self,
        table: DataFrame,
        *,
        key: str | Column | Sequence[str | Column],
        time: str | Column,
        window: str | timedelta | Column | None,
        sequence: str | Column | None = None,
        lateness: str | timedelta | None = None,
        window_from: Literal["first", "last"] = "first",
        null_key: Literal["new", "error"] = "new",
        parts: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Seeded:
        """Remember what a table already holds, so that rows that repeat it are duplicates from now on.

        ```python
        orders = spark.read.format("delta").load("/data/orders")
        print(Ledger.open("/data/ledger").seed(orders, key="id", time="at", window="1 day"))
        ```

        The ledger then is as if all rows had been checked in the order of their time. All keys join it at once, at the
        end. If the call is interrupted, the same call in the same process goes on with the parts that are missing; in a
        new process it may start from the beginning. A second call adds only what the ledger does not remember.

        Args:
            table: A batch DataFrame. Its rows are read once.
            key: See `detect_duplicates`, as for `time`, `window`, `sequence`, `lateness`, `window_from` and `null_key`.
                Give the same values as for the stream that uses the ledger.
            time: A timestamp column, or an expression.
            window: A duration, a column, or None for ever.
            sequence: A whole-number column that breaks ties in time.
            lateness: How much longer than its window to remember a key.
            window_from: `"last"` if duplicates extend the window.
            null_key: `"new"` counts rows with a null in their key and ignores them. `"error"` refuses them.
            parts: The number of tasks, at most 256. A Python worker holds a whole part in memory. The default is 64, or
                more on a large cluster.
            checkpoint: The `checkpointLocation` of the streaming query that the ledger belongs to: the keys join beside
                it, as with `batch`. Such a seed starts from the beginning if it was killed.

        Raises:
            BadSeed: The ledger remembers keys for another window, or would remember none of the rows.
            BadColumn: A column is missing, has the wrong type, or holds a value that detection cannot use.
            LedgerMismatch: The ledger is for another key.
            LedgerInUse: The ledger belongs to a query, or another writer is writing to it.
        """
        return seed_ledger(
            self,
            table,
            key=key,
            time=time,
            window=window,
            sequence=sequence,
            lateness=lateness,
            window_from=window_from,
            null_key=null_key,
            parts=parts,
            checkpoint=checkpoint,
        )
