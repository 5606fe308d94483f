"""Finds the original of each row of the inbox that is a duplicate, according to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from oncebus.detection import Rows
from oncebus.ledger import Generation, Listing, TaskLedger
from oncebus.model.messages import LogRow

KEY_SIGNATURE = ("entity, message id, partition key",)


class Original(NamedTuple):
    """The message that a duplicate repeats."""

    sequence: int
    time: int


class JudgedRows(NamedTuple):
    """The original of each row, None for a new one, and the function that makes the accepted keys durable.

    The caller must call `publish`. No row may leave the task before it has returned.
    """

    originals: list[Original | None]
    publish: Callable[[], None]


def detect(
    rows: Sequence[LogRow],
    ledger: TaskLedger,
    generation: Generation,
    batch: int,
    part: int,
    parts: int,
    listing: Listing | None = None,
) -> JudgedRows:
    """Return the originals of one part's rows, and the function that publishes the keys of the others.

    `parts` is the number of parts in the batch. `listing` comes from `TaskLedger.enter`; without it the ledger lists
    its runs again.
    """
    originals: list[Original | None] = [None] * len(rows)
    chosen = [at for at, row in enumerate(rows) if row.key is not None]
    if not chosen:
        return JudgedRows(originals, _nothing)
    # Take the time from the newest row, so that a repeated batch has the same time. The clock of the gateway never
    # steps back and never leaps.
    clock = max(row.time for row in rows)
    verdicts, publish = ledger.decide(
        columns_of([rows[at] for at in chosen]),
        generation,
        batch,
        part=part,
        parts=parts,
        clock=clock,
        listing=listing,
    )
    for at in np.flatnonzero(verdicts.is_duplicate).tolist():
        original = Original(int(verdicts.original_sequence[at]), int(verdicts.original_time[at]))
        originals[chosen[at]] = original
    return JudgedRows(originals, publish)


def _nothing() -> None:
    """Do nothing. Stands in for `publish` if no row has a key."""


def columns_of(rows: Sequence[LogRow]) -> Rows:
    """Convert rows of the inbox, all with keys, to the type that detection takes."""
    size = len(rows)
    digests = np.frombuffer(b"".join([row.key or b"" for row in rows]), ">u8").astype(np.uint64).reshape(size, 2)
    time, window, sequence, position = (
        np.array(values, np.int64)
        for values in zip(*((row.time, row.window, row.sequence, row.position) for row in rows), strict=True)
    )
    # The numbers of messages do not tell which came first: some are reserved long before their message is in the inbox,
    # and those of two partitions cannot be compared.
    return Rows(
        digests[:, 0],
        digests[:, 1],
        np.ones(size, np.bool_),
        time,
        window,
        window,
        sequence,
        position.__getitem__,
        place=position,
    )
