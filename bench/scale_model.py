"""Models a ledger in its steady state: ids, bytes, files, merges and requests, from the load alone.

All parts of a batch get the same number of new ids, so the model follows one part and multiplies. Eight neighbouring
runs of a tier become one run of the next tier, until a run is full or the window ends. docs/reference/windows.md shows
the results, and tests/test_scale.py compares them with a real ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from oncebus.ledger.generations import REPEATABLE_BATCHES
from oncebus.ledger.merging import FAN, FULL, LEAST_REWRITTEN

DAY = 86_400
MONTH = 30 * DAY
BYTES_PER_ID = 33
"""On disk, with sequence numbers: a digest, a time, a number and a byte of the filter."""

BYTES_PER_RUN = 84
"""The header of a run, with one window."""

CHUNK = 8 << 20
"""The most bytes in one request of `oncebus.ledger.object_storage`."""

LISTINGS = 2
"""How often a task lists the ledger in a batch: when it enters the batch, and when it tidies its part."""

SCANS = 2
"""How many scans a listing needs: the second shows that no file went away during the first."""

OTHER_FILES = 2
"""`ledger.json` and the file of one generation."""


@dataclass(frozen=True)
class Merging:
    """The numbers that decide about merges. Tests use smaller ones."""

    fan: int = FAN
    full: int = FULL
    least_rewritten: int = LEAST_REWRITTEN
    repeatable: int = REPEATABLE_BATCHES


@dataclass(frozen=True)
class Load:
    """What a query has to do: messages per second, and seconds of the window and between batches.

    `machines` are those that run tasks. Spark gives a part to any of them, so each keeps copies of all runs.
    """

    rate: float
    window: float
    interval: float
    parts: int
    duplicates: float = 0.1
    machines: int = 1


@dataclass(frozen=True)
class Written:
    """Runs of one kind: how many appear per part and batch, their size in ids, and how many batches they last."""

    per_batch: float
    ids: float
    batches: float

    @property
    def bytes(self) -> float:
        return self.ids * BYTES_PER_ID + BYTES_PER_RUN


class Ledger:
    """The steady state of a ledger under a load."""

    def __init__(self, load: Load, merging: Merging | None = None) -> None:
        self.load = load
        self.merging = merging or Merging()
        self.batches_per_window = load.window / load.interval
        self.new_ids = load.rate * load.interval * (1 - load.duplicates) / load.parts
        """The new ids of a part in one batch."""

    @cached_property
    def levels(self) -> int:
        """How often an id is merged: until its run is full, or until the window is too short for another merge."""
        fan, found, size = self.merging.fan, 0, self.new_ids
        settled = self.batches_per_window - self.merging.repeatable
        while size < self.merging.full and fan ** (found + 1) <= settled:
            found, size = found + 1, size * fan
        return found

    @property
    def span(self) -> int:
        """The number of batches in a run of the highest level."""
        return int(self.merging.fan**self.levels)

    @cached_property
    def written(self) -> list[Written]:
        """All runs that are published: those of batches, merged ones from small to large, and rewritten ones."""
        fan, waiting = self.merging.fan, (self.merging.fan + 1) / 2
        found = []
        for level in range(self.levels + 1):
            width = fan**level
            lasts = self.batches_per_window if level == self.levels else waiting * width
            found.append(
                Written(1 / width, self.new_ids * width, lasts + (self.merging.repeatable if not level else 0))
            )
        ids, left = self.new_ids * self.span, self.span / 4
        # A run is rewritten when three quarters of it are forgotten, again and again while it is large enough. If the
        # last quarter takes less time than a batch, the run may be gone before a batch finds it so.
        while ids >= self.merging.least_rewritten and left >= 1 / 16:
            found.append(Written(min(left, 1) / self.span, ids / 4 * min(1, left / 2 + 0.5), max(left, 1)))
            ids, left = ids / 4, left / 4
        return found

    # What is there

    @property
    def ids(self) -> float:
        """The ids that must be remembered."""
        return self.new_ids * self.batches_per_window * self.load.parts

    @property
    def stored_ids(self) -> float:
        """The ids in the files: also those of the newest batches' worth of time, and the forgotten part of one run."""
        forgotten = self.merging.repeatable + 0.3 * self.span
        return self.new_ids * (self.batches_per_window + forgotten) * self.load.parts

    @property
    def bytes(self) -> float:
        return self.stored_ids * BYTES_PER_ID

    @property
    def runs_per_part(self) -> float:
        """The runs that a task searches: those that may be repeated, those that wait for a merge, and the last ones."""
        waiting = (self.merging.fan - 1) / 2
        widths = [int(self.merging.fan**level) for level in range(self.levels)]
        below = self.merging.repeatable + waiting * sum(widths)
        rest = (self.batches_per_window + self.merging.repeatable - below) / self.span
        return self.merging.repeatable + waiting * self.levels + max(rest, 0) + (1 if self.levels else 0)

    @property
    def files(self) -> float:
        """All files: merged runs stay for one more batch."""
        replaced = sum(self.merging.fan * each.per_batch for each in self.written[1 : self.levels + 1])
        return (self.runs_per_part + replaced) * self.load.parts + OTHER_FILES

    # What happens in a day

    @property
    def tasks_per_day(self) -> float:
        return DAY / self.load.interval * self.load.parts

    @property
    def files_per_day(self) -> float:
        """The files written in a day. In the long run, as many are deleted."""
        return self.tasks_per_day * sum(each.per_batch for each in self.written)

    @property
    def amplification(self) -> float:
        """How often an id is written in all."""
        return sum(each.per_batch * each.ids for each in self.written) / self.new_ids

    @property
    def bytes_per_day(self) -> float:
        return self.tasks_per_day * sum(each.per_batch * each.bytes for each in self.written)

    @property
    def merged_bytes_per_day(self) -> float:
        return self.tasks_per_day * self.new_ids * (self.amplification - 1) * BYTES_PER_ID

    def puts_per_day(self, store: Store) -> float:
        return self.tasks_per_day * sum(each.per_batch * store.puts(each.bytes) for each in self.written)

    def pages(self, store: Store) -> int:
        """The requests of one scan."""
        return math.ceil(self.files / store.page)

    def lists_per_day(self, store: Store) -> float:
        return self.tasks_per_day * LISTINGS * SCANS * self.pages(store)

    @property
    def gets_per_day(self) -> float:
        """Each machine that gets a part downloads the runs that it has no copy of."""
        return self.tasks_per_day * sum(
            each.per_batch * math.ceil(each.bytes / CHUNK) * self._readers(each) for each in self.written
        )

    @property
    def bytes_read_per_day(self) -> float:
        return self.tasks_per_day * sum(each.per_batch * each.bytes * self._readers(each) for each in self.written)

    def _readers(self, runs: Written) -> float:
        """The number of machines that get the part while the run is there, if Spark chooses them at random."""
        machines = self.load.machines
        return machines * (1 - (1 - 1 / machines) ** max(runs.batches, 1)) if machines > 1 else 1.0

    def dollars(self, store: Store) -> Dollars:
        """The price of a month."""
        days = MONTH / DAY
        return Dollars(
            days * self.lists_per_day(store) * store.list_price,
            days * self.puts_per_day(store) * store.put_price,
            days * self.gets_per_day * store.get_price,
            self.bytes / 1e9 * store.gigabyte_price,
        )


@dataclass(frozen=True)
class Dollars:
    """The price of a month, by what is paid for."""

    lists: float
    puts: float
    gets: float
    storage: float

    @property
    def total(self) -> float:
        return self.lists + self.puts + self.gets + self.storage


@dataclass(frozen=True)
class Store:
    """An object store: the names in one page of a listing, the requests of a large upload, and example prices.

    `extra_puts` come with an upload in several pieces: to begin and to complete it. Deletes are free on both stores.
    """

    name: str
    page: int
    extra_puts: int
    put_price: float
    list_price: float
    get_price: float
    gigabyte_price: float

    def puts(self, size: float) -> int:
        """The requests that write an object."""
        return 1 if size <= CHUNK else math.ceil(size / CHUNK) + self.extra_puts


S3 = Store("S3", 1000, 2, 0.005 / 1000, 0.005 / 1000, 0.0004 / 1000, 0.023)
AZURE = Store("Azure Blob", 5000, 1, 0.05 / 10_000, 0.05 / 10_000, 0.004 / 10_000, 0.018)
PRICES = "The prices are an example, assumed in November 2026 and no quote: take those of your region"
