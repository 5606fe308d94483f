"""Histograms of how long each step of a message's path takes.

These are not the histograms of `prometheus_client`, which cost five times as much per message: see decision 0013.
`oncebus.protocols.monitoring` passes the counts on to Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

BOUNDS = (
    *(500, 1_000, 2_500, 5_000),
    *(10_000, 25_000, 50_000, 100_000, 150_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000),
)
"""The upper bounds of the buckets, in microseconds. One more bucket counts everything that takes longer."""


class Latency:
    """A histogram of durations in microseconds. One thread observes; others may read."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0

    def observe(self, duration: int, times: int = 1) -> None:
        """Add a duration that occurred this many times to the histogram."""
        self.counts[bisect_left(BOUNDS, duration)] += times
        self.total += duration * times

    def observe_all(self, durations: Iterable[int]) -> None:
        """Add several durations to the histogram. This is cheaper than adding them one by one."""
        counts, total = self.counts, 0
        for duration in durations:
            counts[bisect_left(BOUNDS, duration)] += 1
            total += duration
        self.total += total


@dataclass(frozen=True, slots=True)
class Latencies:
    """The histograms of a broker.

    `send`: from the request until it is answered *accepted*, per request.
    `commit`: appending to the inbox with its fsync, per commit.
    `judge`: from a durable commit until its verdicts are in the outbox, per commit.
    `ingest`: from there until the store has ingested it, per commit.
    `batch`: from a durable commit until the store has ingested it, per commit: both of these.
    `end_to_end`: from *accepted* until a receiver gets the message for the first time, per message.
    """

    send: Latency = field(default_factory=Latency)
    commit: Latency = field(default_factory=Latency)
    judge: Latency = field(default_factory=Latency)
    ingest: Latency = field(default_factory=Latency)
    batch: Latency = field(default_factory=Latency)
    end_to_end: Latency = field(default_factory=Latency)
