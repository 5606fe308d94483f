"""Where the time of a message goes: what `bench/tracing` has noted, between its sending and its arrival."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

STAGES = (
    ("appended", "the gateway has read it"),
    ("durable", "it is durable in the inbox"),
    ("seen", "the query sees the commit"),
    ("plan", "Spark asks for the parts"),
    ("planned", "the batch is planned"),
    ("task", "the task starts"),
    ("entered", "the ledger is listed"),
    ("detected", "it is judged"),
    ("routed", "it is routed"),
    ("run", "its key is durable"),
    ("part", "its part is in the outbox"),
    ("found", "the gateway finds the part"),
    ("ingest", "the part is read"),
    ("inserted", "it is inserted"),
    ("ingested", "the store is durable"),
)
"""The points on the way of a single message, in order."""


class Point(NamedTuple):
    """Something that happened at a time, in seconds on the monotonic clock."""

    at: float
    name: str


def points_in(folder: Path) -> list[Point]:
    """All that was noted by all processes, in order."""
    found = []
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            at, _, name = line.partition(" ")
            found.append(Point(int(at) / 1e9, name))
    return sorted(found)


def stages_of(points: Sequence[Point], sent: Iterable[float], arrived: Iterable[float]) -> dict[str, list[float]]:
    """Seconds from stage to stage, for each message. Nothing else may be under way at the same time.

    Two stages that run side by side may come in either order; then the later one takes no time.
    """
    found: dict[str, list[float]] = {}
    for begin, end in zip(sent, arrived, strict=True):
        first = bisect.bisect_left(points, Point(begin, ""))
        last = bisect.bisect_right(points, Point(end, ""))
        at = begin
        for name, _ in STAGES:
            passed = next((point.at for point in points[first:last] if point.name == name and point.at >= begin), None)
            if passed is not None:
                found.setdefault(name, []).append(max(passed - at, 0.0))
                at = max(at, passed)
        found.setdefault("arrived", []).append(end - at)
    return found


def summary(stages: dict[str, list[float]]) -> list[tuple[str, float, float]]:
    """Each stage with its median and its 99th percentile in milliseconds."""
    return [
        (words, statistics.median(stages[name]) * 1e3, sorted(stages[name])[int(len(stages[name]) * 0.99)] * 1e3)
        for name, words in (*STAGES, ("arrived", "the receiver has it"))
        # Most messages meet a task that is already there.
        if len(stages.get(name, ())) > len(stages["arrived"]) // 2
    ]
