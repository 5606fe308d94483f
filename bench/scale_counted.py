"""Drives a real ledger through days of simulated time, and counts its files, bytes and requests.

The ledger is in a local folder. What it asks of its storage is counted as the requests that an object store would get.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import numpy as np

from bench.scale_model import CHUNK, DAY, Load, Store
from oncebus.detection import Rows
from oncebus.detection.values import Keys
from oncebus.ledger import Ledger, Owner, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Piece, Stamp, list_until_agreed

START = 1_700_000_000_000_000
SECOND = 1_000_000
IRREGULAR = 0.1
"""How much earlier or later than planned a batch begins, in intervals."""

WRITER = Writer("5ca1e" * 4, "simulation", Owner.this_process())


@dataclass
class Counts:
    """What a storage was asked for."""

    scans: int = 0
    pages: int = 0
    published: int = 0
    puts: int = 0
    bytes_written: int = 0
    gets: int = 0
    bytes_read: int = 0
    deleted: int = 0


@dataclass
class Counted:
    """The counts of some days, and what was there on average."""

    days: float
    counts: Counts
    batches: int = 0
    files: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    new_ids: int = 0

    def per_day(self, count: float) -> float:
        return count / self.days


class CountingStorage:
    """One machine's access to a local folder. `counts` may be shared with other machines."""

    def __init__(self, folder: str, store: Store, machine: int, counts: Callable[[], Counts]) -> None:
        # The location is also the key of the runs that a process has open. Here, a machine stands for a process.
        self.location = f"{folder}#{machine}"
        self._inner, self._store, self._counts = LocalStorage(folder), store, counts

    def names(self) -> dict[str, Stamp]:
        return list_until_agreed(self._scan)

    def _scan(self) -> dict[str, Stamp]:
        found = self._inner._scan()
        self._counts().scans += 1
        self._counts().pages += max(1, math.ceil(len(found) / self._store.page))
        return found

    def read(self, name: str) -> memoryview:
        found = self._inner.read(name)
        self._counts().gets += max(1, math.ceil(len(found) / CHUNK))
        self._counts().bytes_read += len(found)
        return found

    def read_part(self, name: str, begin: int, end: int) -> memoryview:
        found = self._inner.read_part(name, begin, end)
        self._counts().gets += 1
        self._counts().bytes_read += len(found)
        return found

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        self._count_put(pieces)
        self._inner.publish(name, pieces)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        self._count_put(pieces)
        return self._inner.publish_new(name, pieces)

    def _count_put(self, pieces: Sequence[Piece]) -> None:
        size, counts = sum(len(piece) for piece in pieces), self._counts()
        counts.published += 1
        counts.puts += self._store.puts(size)
        counts.bytes_written += size

    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        self._counts().deleted += len(wanted)
        self._inner.delete(wanted)

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        return self._inner.is_verified(name, stamp)

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Record nothing: the marker of a large file would lie in a cache that this simulation does not use."""

    def forget(self, name: str) -> bool:
        return self._inner.forget(name)


def run_task(ledger: Ledger, rows: Rows, batch: int, part: int, parts: int, clock: int) -> int:
    """Do what a task of `detect_duplicates` does with its ledger. Return the number of new ids."""
    generation, listing = ledger.enter(WRITER, batch)
    verdicts = ledger.judge(rows, generation, batch, part=part, parts=parts, clock=clock, cut=clock, listing=listing)
    ledger.tidy(generation, batch, part=part, parts=parts)
    return int(np.count_nonzero(verdicts.accepted))


class Sender:
    """Makes the rows of each batch: fresh ids, and repetitions of ids of the batch before.

    The rate is steady, but batches are up to a fifth shorter or longer than the interval, as Spark's are.
    """

    def __init__(self, load: Load, batches: int, seed: int = 1) -> None:
        self._load = load
        self._random = np.random.default_rng(seed)
        jitter = self._random.uniform(-IRREGULAR, IRREGULAR, batches + 1)
        self.edges = np.rint((np.arange(batches + 1) + jitter) * load.interval * SECOND).astype(np.int64) + START
        """When each batch begins, in microseconds."""
        self._sent: dict[int, tuple[Keys, Keys]] = {}

    def rows(self, batch: int, part: int) -> Rows:
        load = self._load
        first, last = (int(edge) for edge in self.edges[batch : batch + 2])
        # Carry the fraction of a row over from batch to batch.
        begin, end = (round((edge - START) / SECOND * load.rate / load.parts) for edge in (first, last))
        count = end - begin
        high, low = (self._random.integers(0, 2**64, count, dtype=np.uint64) for _ in range(2))
        if part in self._sent:
            again = min(round(count * load.duplicates), len(self._sent[part][0]))
            high[:again], low[:again] = (half[len(half) - again :] for half in self._sent[part])
        self._sent[part] = (high, low)
        time = np.sort(self._random.integers(first, last, count))
        window = np.full(count, int(load.window * SECOND))
        numbers = np.arange(begin, end)
        return Rows(high, low, np.ones(count, np.bool_), time, window, window, numbers, numbers.__getitem__)


def count(load: Load, store: Store, *, warm_up: float, counted: float, folder: str) -> Counted:
    """Run a ledger for `warm_up` and then `counted` seconds of simulated time, and count in the second period."""
    current = Counts()
    machines = [
        Ledger(CountingStorage(folder, store, machine, lambda: current)) for machine in range(max(load.machines, 1))
    ]
    machines[0].describe_or_check(["id string"], has_secret=True)
    chance = Random(1)
    first, last = round(warm_up / load.interval), round((warm_up + counted) / load.interval)
    sender = Sender(load, last)
    result = Counted(days=(last - first) * load.interval / DAY, counts=current)
    for batch in range(last):
        if batch == first:
            result.counts = current = Counts()
        clock = int(sender.edges[batch + 1])
        for part in range(load.parts):
            new = run_task(chance.choice(machines), sender.rows(batch, part), batch, part, load.parts, clock)
            result.new_ids += new if batch >= first else 0
        if batch >= first:
            summary = _looked_at(folder)
            result.batches += 1
            result.files.append(len(os.listdir(folder)))
            result.runs.append(summary[0])
            result.ids.append(summary[1])
    return result


def _looked_at(folder: str) -> tuple[int, int]:
    """Return the number of runs and ids, without being counted."""
    found = Ledger.open(folder).summary()
    return found.runs, found.ids


@contextmanager
def memory_folder() -> Iterator[str]:
    """Make a folder in memory, if there is one, for the block: nothing here has to survive."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="oncebus-scale-") as folder:
        yield os.path.join(folder, "ledger")
