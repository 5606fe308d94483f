"""`detect`: marks the rows whose key was accepted within its window. The ledger's rules, on the inbox's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from oncebus.detection import Rows, part_of
from oncebus.ledger import Generation, Ledger, Owner
from oncebus.spark.task import whereabouts

KEY_SIGNATURE = ("entity, message id, partition key",)


@dataclass(frozen=True, slots=True)
class Detect:
    """What a task does with the inbox's rows of one or several shards. Pickled for the workers."""

    ledger: str
    shards: int
    owner: Owner
    follows: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows with their verdicts, all together, once all that is accepted has been published.

        The ledger is tidied when the next is asked for: after what is made of the rows, which somebody waits for.
        """
        received = [batch for batch in batches if batch.num_rows]
        ledger = Ledger.open(self.ledger)
        writer, batch = whereabouts(self.owner, self.follows)
        generation = ledger.join(writer, batch)
        if not received:
            return
        table, shards = judged(pa.Table.from_batches(received), ledger, generation, batch, self.shards)
        yield table
        for shard in shards:
            ledger.tidy(generation, batch, part=shard, parts=self.shards)


def judged(
    table: pa.Table, ledger: Ledger, generation: Generation, batch: int, shards: int
) -> tuple[pa.Table, list[int]]:
    """The rows with their verdicts, and the shards in which keys were looked up. What is accepted is published."""
    table = table.combine_chunks()
    rows = rows_of(table)
    is_duplicate = np.zeros(len(rows), np.bool_)
    sequence, time = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    shard = np.where(rows.has_key, part_of(rows.high, rows.low, shards), -1)
    present = [number for number in np.unique(shard).tolist() if number >= 0]
    # The gateway's clock never steps back nor leaps, so the newest row tells the time, in a repeated batch too.
    clock = int(rows.time.max())
    for number in present:
        chosen = np.flatnonzero(shard == number)
        verdicts = ledger.judge(rows.take(chosen), generation, batch, parts=shards, clock=clock)
        is_duplicate[chosen] = verdicts.is_duplicate
        sequence[chosen] = verdicts.original_sequence
        time[chosen] = verdicts.original_time
    for name, values in (
        ("is_duplicate", pa.array(is_duplicate)),
        ("original_sequence", pa.array(sequence, mask=~is_duplicate)),
        ("original_time", pa.array(time, mask=~is_duplicate)),
    ):
        table = table.append_column(name, values)
    return table, present


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
