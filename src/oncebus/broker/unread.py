"""Rows that an earlier broker left in the inbox. Read once, when a broker opens."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncebus.engine.inbox import Row
from oncebus.model.messages import NOBODY, LogRow


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


def left_in(rows: Iterable[LogRow]) -> Iterator[LeftoverCommit]:
    """Summarize the commits of these rows of the inbox, in order."""
    for commit, of_commit in itertools.groupby(rows, lambda row: row.commit):
        sizes, counts = Counter[int](), Counter[int]()
        body_files: list[str] = []
        time, inline = None, 0
        for row in of_commit:
            sizes[row.entity] += row.size
            counts[row.entity] += 1
            inline += len(row.head) + len(row.body or b"")
            if row.entity != NOBODY:
                time = row.time if time is None else min(time, row.time)
            if row.body_file is not None:
                body_files.append(row.body_file)
        yield LeftoverCommit(commit, sorted(sizes.items()), time, body_files, dict(counts), inline)
