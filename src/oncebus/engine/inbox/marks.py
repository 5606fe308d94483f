"""The greatest times and sequence numbers in rows that the store has not ingested yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncebus.model.messages import LogRow, partition_in


@dataclass(slots=True)
class Marks:
    """The greatest time among some rows (None without rows), and the greatest sequence number by (entity, partition).

    The partition is the upper bits of the sequence number; 0 if the entity has no partitions.
    """

    time: int | None = None
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)


def marks_of(rows: Iterable[LogRow]) -> Marks:
    """Return the marks of rows from the inbox."""
    marks = Marks()
    for row in rows:
        if marks.time is None or row.time > marks.time:
            marks.time = row.time
        key = row.entity, partition_in(row.sequence)
        if row.sequence > marks.sequences.get(key, -1):
            marks.sequences[key] = row.sequence
    return marks
