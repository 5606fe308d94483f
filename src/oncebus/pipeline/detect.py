"""Gives each row of the inbox its verdict, according to the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from oncebus.detection import Rows
from oncebus.ledger import Generation, Listing, TaskLedger

KEY_SIGNATURE = ("entity, message id, partition key",)


class JudgedRows(NamedTuple):
    """Rows with their verdicts, and the function that makes their keys durable.

    The caller must call `publish`. No row may leave the task before it has returned.
    """

    rows: pa.Table
    publish: Callable[[], None]


def detect(
    table: pa.Table,
    ledger: TaskLedger,
    generation: Generation,
    batch: int,
    part: int,
    parts: int,
    listing: Listing | None = None,
) -> JudgedRows:
    """Return one part's rows with verdicts, and the function that publishes their keys.

    `parts` is the number of parts in the batch. `listing` comes from `TaskLedger.enter`; without it the ledger lists
    its runs again.
    """
    table = table.combine_chunks()
    rows = rows_of(table)
    is_duplicate = np.zeros(len(rows), np.bool_)
    sequence, time = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    chosen = np.flatnonzero(rows.has_key)
    publish: Callable[[], None] = _nothing
    if len(chosen):
        # Take the time from the newest row, so that a repeated batch has the same time. The clock of the gateway never
        # steps back and never leaps.
        clock = int(rows.time.max())
        verdicts, publish = ledger.decide(
            rows.take(chosen), generation, batch, part=part, parts=parts, clock=clock, listing=listing
        )
        is_duplicate[chosen] = verdicts.is_duplicate
        sequence[chosen] = verdicts.original_sequence
        time[chosen] = verdicts.original_time
    for name, values in (
        ("is_duplicate", pa.array(is_duplicate)),
        ("original_sequence", pa.array(sequence, mask=~is_duplicate)),
        ("original_time", pa.array(time, mask=~is_duplicate)),
    ):
        table = table.append_column(name, values)
    return JudgedRows(table, publish)


def _nothing() -> None:
    """Do nothing. Stands in for `publish` if no row has a key."""


def rows_of(table: pa.Table) -> Rows:
    """Convert rows of the inbox to the type that detection takes."""
    key = table.column("key").combine_chunks().cast(pa.binary(16))
    has_key = np.asarray(key.is_valid())
    digests = np.frombuffer(key.buffers()[1], ">u8", 2 * len(key), 16 * key.offset).reshape(-1, 2)
    time, window, sequence, position = (
        np.asarray(table.column(name).combine_chunks()) for name in ("time", "window", "sequence", "position")
    )
    high, low = digests[:, 0].astype(np.uint64), digests[:, 1].astype(np.uint64)
    # The numbers of messages do not tell which came first: some are reserved long before their message is in the inbox,
    # and those of two partitions cannot be compared.
    return Rows(high, low, has_key, time, window, window, sequence, position.__getitem__, place=position)
