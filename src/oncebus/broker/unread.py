"""Rows that an earlier broker left in the inbox. Read once, when a broker opens."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebus.engine.inbox import Row
from oncebus.model.messages import NOBODY

_AT_ONCE = 4096


class LeftoverCommit(NamedTuple):
    """A commit that an earlier broker left in the inbox, with the body files that its rows name.

    `sizes` has pairs (entity, bytes). `time` is the time of the oldest row, or None if all rows are pulses, because a
    pulse's time is before it was appended. `rows` has the number of rows of each entity. `inline` is the number of
    message bytes in the rows themselves, without body files.
    """

    commit: int
    sizes: list[tuple[int, int]]
    time: int | None
    body_files: list[str]
    rows: dict[int, int]
    inline: int


def inline_bytes(rows: Iterable[Row]) -> int:
    """Return how many bytes of their messages rows contain. Body files do not count."""
    return sum([len(row["head"]) + len(row.get("body") or b"") for row in rows])


def left_in(batches: Iterable[pa.RecordBatch]) -> Iterator[LeftoverCommit]:
    """Summarize the commits of these rows of the inbox, in order."""
    for some in _in_whole_commits(batches):
        commit, entity, size, time = (
            np.concatenate([batch.column(name).to_numpy() for batch in some])
            for name in ("commit", "entity", "size", "time")
        )
        order = np.lexsort([entity, commit])
        commit, entity = commit[order], entity[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (commit[1:] != commit[:-1]) | (entity[1:] != entity[:-1])
        starts = np.flatnonzero(is_first)
        found = zip(
            commit[starts].tolist(),
            entity[starts].tolist(),
            np.add.reduceat(size[order], starts).tolist(),
            np.minimum.reduceat(time[order], starts).tolist(),
            np.diff(np.append(starts, len(order))).tolist(),
            strict=True,
        )
        body_files, inline = _body_files_of(some), _inline_of(some)
        for number, parts in itertools.groupby(found, lambda part: part[0]):
            of_commit = list(parts)
            times = [time for _, entity, _, time, _ in of_commit if entity != NOBODY]
            sizes = [(entity, size) for _, entity, size, _, _ in of_commit]
            rows = {entity: count for _, entity, _, _, count in of_commit}
            yield LeftoverCommit(
                number, sizes, min(times, default=None), body_files.get(number, []), rows, inline[number]
            )


def _in_whole_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches in groups that contain whole commits. Each batch has rows of one commit only."""
    some: list[pa.RecordBatch] = []
    for _, of_commit in itertools.groupby(batches, lambda batch: batch.column("commit")[0].as_py()):
        some += of_commit
        if len(some) >= _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _inline_of(batches: Iterable[pa.RecordBatch]) -> Counter[int]:
    found: Counter[int] = Counter()
    for batch in batches:
        for name in ("head", "body"):
            found[batch.column("commit")[0].as_py()] += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return found


def _body_files_of(batches: Iterable[pa.RecordBatch]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for batch in batches:
        column = batch.column("body_file")
        if column.null_count < len(column):
            # A batch has the rows of one commit only.
            found.setdefault(batch.column("commit")[0].as_py(), []).extend(column.drop_null().to_pylist())
    return found
