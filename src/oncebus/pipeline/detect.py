"""`detect`: marks the rows whose key was accepted within its window. The ledger's rules, on the inbox's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from oncebus.detection import Rows
from oncebus.ledger import Generation, Ledger, Listing

KEY_SIGNATURE = ("entity, message id, partition key",)


class Judged(NamedTuple):
    """Rows with their verdicts. Nobody may see them before `publish` has returned: it makes the keys durable."""

    rows: pa.Table
    publish: Callable[[], None]


def judged(
    table: pa.Table, ledger: Ledger, generation: Generation, batch: int, parts: int, listing: Listing | None = None
) -> Judged:
    """Judge rows whose keys are those of one of so many parts. `listing` is what `Ledger.enter` has given."""
    table = table.combine_chunks()
    rows = rows_of(table)
    is_duplicate = np.zeros(len(rows), np.bool_)
    sequence, time = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    chosen = np.flatnonzero(rows.has_key)
    publish: Callable[[], None] = _nothing
    if len(chosen):
        # The gateway's clock never steps back nor leaps, so the newest row tells the time, in a repeated batch too.
        clock = int(rows.time.max())
        verdicts, publish = ledger.decide(
            rows.take(chosen), generation, batch, parts=parts, clock=clock, listing=listing
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
    return Judged(table, publish)


def _nothing() -> None:
    """There are no keys to publish."""


def rows_of(table: pa.Table) -> Rows:
    """The inbox's rows as detection takes them."""
    key = table.column("key").combine_chunks().cast(pa.binary(16))
    has_key = np.asarray(key.is_valid())
    digests = np.frombuffer(key.buffers()[1], ">u8", 2 * len(key), 16 * key.offset).reshape(-1, 2)
    time, window, sequence, position = (
        np.asarray(table.column(name).combine_chunks()) for name in ("time", "window", "sequence", "position")
    )
    high, low = digests[:, 0].astype(np.uint64), digests[:, 1].astype(np.uint64)
    return Rows(high, low, has_key, time, window, window, sequence, position)
