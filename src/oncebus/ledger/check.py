"""Checks every file of a ledger, one after the other. Reads only, and works beside any writer.

A ledger has no list of its runs, because every writer would have to change it. So if a whole run was deleted, nothing
here can notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from oncebus.detection import NO_HORIZON
from oncebus.ledger.description import FILE_NAME, Description, LedgerMismatch, not_a_ledger
from oncebus.ledger.filter import add_to_filter, filter_words
from oncebus.ledger.generations import Generation
from oncebus.ledger.listing import CONFIRMED, GENERATION, SEED, Listing
from oncebus.ledger.names import RunName, parse_run_names
from oncebus.ledger.owner import Owner
from oncebus.ledger.run import CorruptRun, Entries, Run
from oncebus.ledger.run_header import ADVICE
from oncebus.ledger.storage import Stamp, Storage, StorageError

_NAMES = [FILE_NAME, GENERATION.pattern, CONFIRMED.pattern, SEED.pattern, r"run-.*\.run", r"aside-.*", r"\.tmp-.*"]
_FILES = re.compile("|".join(_NAMES))


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about one file of a ledger that people should know."""

    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


@dataclass(slots=True)
class LedgerCheck:
    """What was checked, and what is wrong.

    `problems` may change verdicts. `notes` do no harm. `leftovers` are files that mean nothing any more.
    """

    runs: int = 0
    ids: int = 0
    bytes: int = 0
    problems: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


def check(storage: Storage) -> LedgerCheck:
    """Check all files. Holds one run in memory at a time. Raises `LedgerMismatch` if there is no ledger at all."""
    stamps = storage.names()
    runs = parse_run_names(stamps)
    if FILE_NAME not in stamps and not runs:
        raise not_a_ledger(storage.location, stamps)
    found = LedgerCheck()
    found.problems += _problems_of_description(storage, stamps)
    listing = Listing.of(stamps, _readable_generations(storage, stamps, found))
    found.problems += _problems_of_names(listing)
    found.notes += _notes(listing)
    if found.is_intact:
        # Without all generations, runs that count would look like leftovers.
        found.leftovers = listing.leftovers()
    found.problems += _problems_of_marks(storage, listing)
    for run in runs:
        found.problems += _problems_of_run(storage, run, stamps[str(run)], found)
    return found


def _problems_of_description(storage: Storage, stamps: dict[str, Stamp]) -> Iterator[Remark]:
    if FILE_NAME not in stamps:
        yield Remark(FILE_NAME, "is missing, so no writer can start. Restore it from a backup.")
        return
    try:
        Description.from_json(bytes(storage.read_part(FILE_NAME, 0, stamps[FILE_NAME].size)), storage.location)
    except (LedgerMismatch, StorageError, OSError) as error:
        yield Remark(FILE_NAME, str(error))


def _readable_generations(storage: Storage, stamps: dict[str, Stamp], found: LedgerCheck) -> list[Generation]:
    """Return the generations that can be read, and add the others to the problems."""
    readable = []
    for name in sorted(filter(GENERATION.fullmatch, stamps)):
        try:
            generation = Generation.from_json(bytes(storage.read_part(name, 0, stamps[name].size)))
            if generation.file_name == name:
                readable.append(generation)
            else:
                found.problems.append(Remark(name, f"claims generation {generation.number}, not that of its name."))
        except FileNotFoundError:
            # A writer has deleted it meanwhile.
            continue
        except (ValueError, TypeError, KeyError, AttributeError, StorageError) as error:
            found.problems.append(Remark(name, f"cannot be read, so no writer can start: {error}"))
    return readable


def _problems_of_names(listing: Listing) -> Iterator[Remark]:
    """Find what the names of all files together tell: missing generations, runs that overlap or cannot be parsed."""
    for name in listing.missing():
        yield Remark(name, "is missing, so the keys of its runs do not count. Restore it from a backup.")
    for name in sorted(listing.stamps.keys() - set(map(str, listing.runs))):
        if name.startswith("run-") and name.endswith(".run"):
            yield Remark(name, "does not have the name of a run, so its keys do not count. Give it its name again.")
    widest: dict[tuple[int, int], RunName] = {}
    for run in listing.visible():
        before = widest.setdefault((run.part, run.parts), run)
        # A batch that was evaluated twice may have several runs.
        is_sibling = run.first == run.last == before.first == before.last
        if before is not run and run.first <= before.last and not is_sibling:
            yield Remark(str(run), f"overlaps with {before}, so keys count twice, and forgets may have no effect.")
        if run.last > before.last:
            widest[run.part, run.parts] = run


def _notes(listing: Listing) -> Iterator[Remark]:
    for name in sorted(listing.stamps):
        if not _FILES.fullmatch(name):
            yield Remark(name, "is not a file of a ledger, and is ignored.")
    for run in listing.unclaimed_runs():
        yield Remark(str(run), "belongs to a batch that is open, or whose process died. It does not count.")


def _problems_of_marks(storage: Storage, listing: Listing) -> Iterator[Remark]:
    for mark in listing.open_asides():
        try:
            Owner.from_json(bytes(storage.read_part(mark.name, 0, listing.stamps[mark.name].size)))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, StorageError) as error:
            yield Remark(mark.name, f"cannot be read, so no writer can tidy. Delete it: {error}")


def _problems_of_run(storage: Storage, run: RunName, stamp: Stamp, found: LedgerCheck) -> list[Remark]:
    name = str(run)
    try:
        data = storage.read_part(name, 0, stamp.size)
    except FileNotFoundError:
        # A writer has merged or deleted it meanwhile.
        return []
    except StorageError as error:
        return [Remark(name, str(error))]
    found.runs += 1
    found.ids += run.size
    found.bytes += len(data)
    return [Remark(name, text) for text in problems_of(run, data)]


def problems_of(name: RunName, data: memoryview) -> list[str]:
    """Return what is wrong with a run, given its whole file; nothing if it is intact.

    Needs little more memory than the file itself.
    """
    try:
        run = Run(str(name), data)
        run.verify()
    except CorruptRun as error:
        return [str(error).removeprefix(f"Ledger run '{name}' ").removesuffix(ADVICE)]
    return [*_problems_of_header(name, run), *_problems_of_entries(run)]


def _problems_of_header(name: RunName, run: Run) -> Iterator[str]:
    if run.size != name.size:
        yield f"has {run.size} entries, but {name.size} in its name."
    if run.horizon != name.horizon:
        yield f"has the horizon {run.horizon}, but {name.horizon} in its name."
    spans = run.entries().spans
    ordered = np.lexsort((spans[:, 1], spans[:, 0]))
    if not np.array_equal(ordered, np.arange(len(spans))) or len(np.unique(spans, axis=0)) != len(spans):
        yield "has spans that are not ascending."


def _problems_of_entries(run: Run) -> Iterator[str]:
    entries = run.entries()
    if len(entries) and not _have_spans(entries):
        yield "has entries without a span."
        return
    if not _is_sorted(entries):
        yield "is not sorted, so keys in it may not be found."
        return
    words = np.zeros(filter_words(len(entries)), np.uint64)
    for some in entries.blocks():
        add_to_filter(words, some.high, some.low)
    if not np.array_equal(words, run.filter):
        yield "has a filter that does not belong to its keys, so keys in it may not be found."
    if not _is_forgotten_in_time(run):
        yield "says wrongly when its entries are forgotten."


def _have_spans(entries: Entries) -> bool:
    spans = len(entries.spans)
    if entries.span_of is None:
        return spans == 1
    return all(int(some.span_of.max()) < spans for some in entries.blocks() if some.span_of is not None)


def _is_sorted(entries: Entries) -> bool:
    """Return whether the entries are in the order (high, low, time)."""
    before: Entries | None = None
    for some in entries.blocks():
        columns = [some.high, some.low, some.time]
        if before is not None:
            last = [before.high[-1:], before.low[-1:], before.time[-1:]]
            columns = [np.concatenate(pair) for pair in zip(last, columns, strict=True)]
        high, low, time = columns
        same = high[1:] == high[:-1]
        if (high[1:] < high[:-1]).any() or (same & (low[1:] < low[:-1])).any():
            return False
        if (same & (low[1:] == low[:-1]) & (time[1:] < time[:-1])).any():
            return False
        before = some
    return True


def _is_forgotten_in_time(run: Run) -> bool:
    """Return whether both horizons in the header are right, without sorting the entries."""
    header = run.header
    last, before, until = NO_HORIZON, 0, 0
    for some in run.entries().blocks():
        end = some.time + some.keep()
        last = max(last, int(end.max()))
        before += int(np.count_nonzero(end < header.mostly_forgotten_from))
        until += int(np.count_nonzero(end <= header.mostly_forgotten_from))
    # The last quarter of the entries, without the one that decides, may be forgotten later.
    place = run.size - 1 - run.size // 4
    is_mostly_right = run.size == 0 or before <= place < until
    return last == header.forgotten_from and is_mostly_right
