"""The greatest times and sequence numbers in rows that the store has not ingested yet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from oncebus.model.messages import PARTITION_SHIFT

_AT_ONCE = 4096


@dataclass(slots=True)
class Marks:
    """The greatest time among some rows (None without rows), and the greatest sequence number by (entity, partition).

    The partition is the upper bits of the sequence number; 0 if the entity has no partitions.
    """

    time: int | None = None
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)


def marks_of(batches: Iterable[pa.RecordBatch]) -> Marks:
    """Return the marks of rows from the inbox."""
    marks = Marks()
    remaining = iter(batches)
    while some := list(itertools.islice(remaining, _AT_ONCE)):
        entity, sequence, time = (
            np.concatenate([batch.column(name).to_numpy() for batch in some]) for name in ("entity", "sequence", "time")
        )
        marks.time = int(time.max()) if marks.time is None else max(marks.time, int(time.max()))
        order = np.lexsort([sequence, entity])
        entity, sequence = entity[order], sequence[order]
        partition = sequence >> PARTITION_SHIFT
        is_last = np.ones(len(entity), bool)
        is_last[:-1] = (entity[1:] != entity[:-1]) | (partition[1:] != partition[:-1])
        for key, greatest in zip(
            zip(entity[is_last].tolist(), partition[is_last].tolist(), strict=True),
            sequence[is_last].tolist(),
            strict=True,
        ):
            marks.sequences[key] = max(greatest, marks.sequences.get(key, greatest))
    return marks
