"""Describes a ledger for people: what it is, who used it last, and how much it holds from each day.

Reads the names of all files, and the header and the times of each run: 8 bytes of each entry. Nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oncebus.detection import NO_HORIZON, is_forgotten
from oncebus.detection.values import Numbers
from oncebus.ledger.description import Description
from oncebus.ledger.generations import Generation
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import horizon_of
from oncebus.ledger.run import BLOCK
from oncebus.ledger.run_header import RunHeader
from oncebus.ledger.storage import Storage
from oncebus.ledger.writers import last_written_ns
from oncebus.values import disk
from oncebus.values.durations import DAY, utc_text

_DAYS_BEFORE, _DAYS_AFTER = 3653, 366
"""Days further away from the horizon are counted together, so that odd times take no memory."""

_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The size of a ledger at one moment.

    Counts include tombstones, and ids that are forgotten but not yet deleted.
    `horizon` is the greatest time that the ledger has seen, in microseconds since 1970; None if it has seen nothing.
    """

    ids: int
    bytes: int
    runs: int
    generation: int
    horizon: int | None

    @classmethod
    def of(cls, listing: Listing) -> LedgerSummary:
        """Return the size of a ledger with these files."""
        visible = listing.visible()
        return cls(
            ids=sum(run.size for run in visible),
            bytes=sum(stamp.size for name, stamp in listing.stamps.items() if not name.startswith(disk.TEMPORARY)),
            runs=len(visible),
            generation=listing.newest.number if listing.newest else 0,
            horizon=horizon_of(visible) if visible else None,
        )

    def __str__(self) -> str:
        """Return a line such as `1,200,000 ids in 12 runs, 39.6 MB, seen up to 2026-01-31T08:30:00Z`."""
        return self.size_text() + ("" if self.horizon is None else f", seen up to {utc_text(self.horizon)}")

    def size_text(self) -> str:
        """Return the same without the time."""
        ids, runs = ("id" if self.ids == 1 else "ids"), ("run" if self.runs == 1 else "runs")
        return f"{self.ids:,} {ids} in {self.runs:,} {runs}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True, slots=True)
class Day:
    """The entries with a time on one day, in UTC. `number` counts the days since 1970.

    `reaches` is "earlier" if it stands for all earlier days too, "later" if for all later ones, else "".
    """

    number: int
    ids: int
    bytes: int
    reaches: str = ""


@dataclass(frozen=True, slots=True)
class Files:
    """Some files and their size."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LedgerOverview:
    """What a ledger is and holds at one moment.

    Counts include tombstones, and entries that are forgotten but not yet deleted: `expired` is the number of those. All
    times are in microseconds since 1970.

    `parts` are the numbers of parts that its batches had. `last` is the generation that was claimed last, and `written`
    the time at which it published its last file. `main` is the writer whose turn it is, if `last` is an aside of its
    query, else the same. `unclaimed` are runs of batches that are open or died, and `leftovers` files that mean nothing
    any more. `windows` are those of the entries.
    """

    description: Description
    summary: LedgerSummary
    parts: list[int]
    main: Generation | None
    last: Generation | None
    written: int | None
    oldest: int | None
    newest: int | None
    expired: int
    tombstones: int
    days: list[Day]
    asides: int
    unclaimed: Files
    leftovers: Files
    windows: list[int]


def overview_of(listing: Listing, storage: Storage, description: Description) -> LedgerOverview:
    """Return the overview of a ledger with these files. Raises `FileNotFoundError` if a run was deleted meanwhile."""
    visible = listing.visible()
    tally = _Tally(listing.horizon())
    for run in visible:
        if run.size:
            tally.add(_Columns(storage, str(run), listing.stamps[str(run)].size))
    last = listing.newest
    return LedgerOverview(
        description,
        LedgerSummary.of(listing),
        sorted({run.parts for run in visible}),
        listing.main,
        last,
        None if last is None else last_written_ns(listing, last) // 1000,
        tally.oldest,
        tally.newest,
        tally.expired,
        tally.tombstones,
        tally.days(),
        len(listing.open_asides()),
        _files(listing, [str(run) for run in listing.unclaimed_runs()]),
        _files(listing, listing.leftovers()),
        sorted(tally.windows),
    )


def windows_of(listing: Listing, storage: Storage) -> set[int]:
    """Return the windows of all entries, in microseconds. Raises `FileNotFoundError` if a run was deleted meanwhile."""
    found: set[int] = set()
    for run in listing.visible():
        if run.size:
            found |= _Columns(storage, str(run), listing.stamps[str(run)].size).windows()
    return found


def _files(listing: Listing, names: list[str]) -> Files:
    return Files(len(names), sum(listing.stamps[name].size for name in names))


class _Columns:
    """Reads parts of a run, without the rest of its file."""

    def __init__(self, storage: Storage, name: str, file_bytes: int) -> None:
        self._storage, self._name = storage, name
        head = storage.read_part(name, 0, _HEAD_BYTES)
        self.header = RunHeader.parse(f"{storage.location}/{name}", head, file_bytes)
        begin, end = self.header.spans_at, self.header.filter_at
        spans = head[begin:end] if end <= len(head) else storage.read_part(name, begin, end)
        self.spans = np.frombuffer(spans, "<i8").reshape(-1, 2)

    def times(self, begin: int, end: int) -> Numbers:
        return self._column("<i8", self.header.time_at, begin, end)

    def keeps(self, begin: int, end: int) -> Numbers:
        if self.header.spans == 1:
            return np.full(end - begin, self.spans[0, 1])
        return np.asarray(self.spans[self._span_of(begin, end), 1])

    def windows(self) -> set[int]:
        """Return the windows of the entries, in microseconds."""
        return set(map(abs, self.spans[:, 0].tolist()))

    def tombstones(self) -> int:
        """Return the number of entries with a negative window."""
        negative = self.spans[:, 0] < 0
        if not negative.any():
            return 0
        if self.header.spans == 1:
            return self.header.size
        return sum(int(np.count_nonzero(negative[self._span_of(*each)])) for each in self.blocks())

    def blocks(self) -> Iterator[tuple[int, int]]:
        for begin in range(0, self.header.size, BLOCK):
            yield begin, min(begin + BLOCK, self.header.size)

    def _span_of(self, begin: int, end: int) -> npt.NDArray[Any]:
        return self._column(self.header.span_type, self.header.span_of_at, begin, end)

    def _column(self, kind: str, at: int, begin: int, end: int) -> npt.NDArray[Any]:
        width = np.dtype(kind).itemsize
        return np.frombuffer(self._storage.read_part(self._name, at + begin * width, at + end * width), kind)


class _Tally:
    """Adds up the entries of runs."""

    def __init__(self, horizon: int) -> None:
        self.oldest: int | None = None
        self.newest: int | None = None
        self.expired = 0
        self.tombstones = 0
        self.windows: set[int] = set()
        self._horizon = horizon
        self._first_day = 0 if horizon == NO_HORIZON else horizon // DAY - _DAYS_BEFORE
        self._ids = np.zeros(_DAYS_BEFORE + _DAYS_AFTER + 1, np.int64)
        self._bytes = np.zeros(len(self._ids))

    def add(self, run: _Columns) -> None:
        self.tombstones += run.tombstones()
        self.windows |= run.windows()
        for begin, end in run.blocks():
            times, keeps = run.times(begin, end), run.keeps(begin, end)
            least, greatest = int(times.min()), int(times.max())
            self.oldest = least if self.oldest is None else min(self.oldest, least)
            self.newest = greatest if self.newest is None else max(self.newest, greatest)
            self.expired += int(np.count_nonzero(is_forgotten(times, keeps, self._horizon)))
            day = np.clip(times // DAY - self._first_day, 0, len(self._ids) - 1)
            ids = np.bincount(day, minlength=len(self._ids))
            self._ids += ids
            self._bytes += ids * (run.header.file_bytes / run.header.size)

    def days(self) -> list[Day]:
        """Return the days that have entries, in order."""
        ends = {0: "earlier", len(self._ids) - 1: "later"}
        return [
            Day(self._first_day + at, int(self._ids[at]), round(self._bytes[at]), ends.get(at, ""))
            for at in np.flatnonzero(self._ids).tolist()
        ]
