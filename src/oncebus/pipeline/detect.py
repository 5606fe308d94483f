"""`detect`: marks the rows whose key was accepted within its window. The ledger's rules, on the inbox's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from oncebus.detection import Rows
from oncebus.ledger import Generation, Ledger
from oncebus.outbox import Batch, OutboxPart
from oncebus.spark.task import Place

KEY_SIGNATURE = ("entity, message id, partition key",)


class Judged(NamedTuple):
    """A task's share of a batch: its rows with their verdicts, and what they will be part of."""

    rows: pa.Table
    part: OutboxPart
    batch: Batch


@dataclass(frozen=True, slots=True)
class Detect:
    """What a task does with the inbox's rows of one or several shards. Pickled for the workers."""

    place: Place

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Judged]:
        """The rows with their verdicts, all together, once all that is accepted has been published.

        The ledger is tidied when the next is asked for: after what is made of the rows, which somebody waits for.
        """
        received = [batch for batch in batches if batch.num_rows]
        ledger = self.place.open()
        writer, batch = self.place.writer()
        generation = ledger.join(writer, batch)
        if not received:
            return
        table = pa.Table.from_batches(received)
        # The shards of a task are whole parts of the keys: it writes one run, and a small batch has but one task.
        part = OutboxPart.of(table)
        yield Judged(judged(table, ledger, generation, batch, part.parts), part, Batch(writer.query, batch))
        if table.column("key").null_count < table.num_rows:
            ledger.tidy(generation, batch, part=part.part, parts=part.parts)


def judged(table: pa.Table, ledger: Ledger, generation: Generation, batch: int, parts: int) -> pa.Table:
    """The rows, whose keys are those of one of so many parts, with their verdicts. What is accepted is published."""
    table = table.combine_chunks()
    rows = rows_of(table)
    is_duplicate = np.zeros(len(rows), np.bool_)
    sequence, time = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    chosen = np.flatnonzero(rows.has_key)
    if len(chosen):
        # The gateway's clock never steps back nor leaps, so the newest row tells the time, in a repeated batch too.
        clock = int(rows.time.max())
        verdicts = ledger.judge(rows.take(chosen), generation, batch, parts=parts, clock=clock)
        is_duplicate[chosen] = verdicts.is_duplicate
        sequence[chosen] = verdicts.original_sequence
        time[chosen] = verdicts.original_time
    for name, values in (
        ("is_duplicate", pa.array(is_duplicate)),
        ("original_sequence", pa.array(sequence, mask=~is_duplicate)),
        ("original_time", pa.array(time, mask=~is_duplicate)),
    ):
        table = table.append_column(name, values)
    return table


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
