"""Checks every file of a ledger, one after the other. Reads only, and works beside any writer.

A ledger has no list of its runs, because every writer would have to change it. So if a whole run was deleted, nothing
here can notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncebus.ledger.compaction import leftovers, unclaimed_runs
from oncebus.ledger.description import FILE_NAME, Description, LedgerMismatch, not_a_ledger
from oncebus.ledger.generations import Generation
from oncebus.ledger.joining import MarkOwner
from oncebus.ledger.listing import CONFIRMED, GENERATION, Listing
from oncebus.ledger.names import RunName, parse_run_names
from oncebus.ledger.run_check import problems_of
from oncebus.ledger.storage import Stamp, Storage, StorageError

_FILES = re.compile(
    "|".join([re.escape(FILE_NAME), GENERATION.pattern, CONFIRMED.pattern, r"run-.*\.run", r"aside-.*", r"\.tmp-.*"])
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one file of a ledger that people should know."""

    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


@dataclass(slots=True)
class LedgerVerification:
    """What was checked, and what is wrong.

    `problems` may change verdicts. `notes` do no harm. `leftovers` are files that mean nothing any more.
    """

    runs: int = 0
    ids: int = 0
    bytes: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


def verify(storage: Storage) -> LedgerVerification:
    """Check all files. Holds one run in memory at a time. Raises `LedgerMismatch` if there is no ledger at all."""
    stamps = storage.names()
    runs = parse_run_names(stamps)
    if FILE_NAME not in stamps and not runs:
        raise not_a_ledger(storage.location, stamps)
    found = LedgerVerification()
    found.problems += _problems_of_description(storage, stamps)
    listing = Listing.of(stamps, _readable_generations(storage, stamps, found))
    found.problems += _problems_of_names(listing)
    found.notes += _notes(listing)
    if found.is_intact:
        # Without all generations, runs that count would look like leftovers.
        found.leftovers = leftovers(listing)
    found.problems += _problems_of_marks(storage, listing)
    for run in runs:
        found.problems += _problems_of_run(storage, run, stamps[str(run)], found)
    return found


def _problems_of_description(storage: Storage, stamps: dict[str, Stamp]) -> Iterator[Finding]:
    if FILE_NAME not in stamps:
        yield Finding(FILE_NAME, "is missing, so no writer can start. Restore it from a backup.")
        return
    try:
        Description.from_json(bytes(storage.read_part(FILE_NAME, 0, stamps[FILE_NAME].size)), storage.location)
    except (LedgerMismatch, StorageError, OSError) as error:
        yield Finding(FILE_NAME, str(error))


def _readable_generations(storage: Storage, stamps: dict[str, Stamp], found: LedgerVerification) -> list[Generation]:
    """Return the generations that can be read, and add the others to the problems."""
    readable = []
    for name in sorted(filter(GENERATION.fullmatch, stamps)):
        try:
            generation = Generation.from_json(bytes(storage.read_part(name, 0, stamps[name].size)))
            if generation.file_name == name:
                readable.append(generation)
            else:
                found.problems.append(Finding(name, f"claims generation {generation.number}, not that of its name."))
        except FileNotFoundError:
            # A writer has deleted it meanwhile.
            continue
        except (ValueError, TypeError, KeyError, AttributeError, StorageError) as error:
            found.problems.append(Finding(name, f"cannot be read, so no writer can start: {error}"))
    return readable


def _problems_of_names(listing: Listing) -> Iterator[Finding]:
    """Find what the names of all files together tell: missing generations, runs that overlap or cannot be parsed."""
    for name in listing.missing():
        yield Finding(name, "is missing, so the keys of its runs do not count. Restore it from a backup.")
    for name in sorted(listing.stamps.keys() - set(map(str, listing.runs))):
        if name.startswith("run-") and name.endswith(".run"):
            yield Finding(name, "does not have the name of a run, so its keys do not count. Give it its name again.")
    widest: dict[tuple[int, int], RunName] = {}
    for run in listing.visible():
        before = widest.setdefault((run.part, run.parts), run)
        # A batch that was evaluated twice may have several runs.
        is_sibling = run.first == run.last == before.first == before.last
        if before is not run and run.first <= before.last and not is_sibling:
            yield Finding(str(run), f"overlaps with {before}, so keys count twice, and forgets may have no effect.")
        if run.last > before.last:
            widest[run.part, run.parts] = run


def _notes(listing: Listing) -> Iterator[Finding]:
    for name in sorted(listing.stamps):
        if not _FILES.fullmatch(name):
            yield Finding(name, "is not a file of a ledger, and is ignored.")
    for run in unclaimed_runs(listing):
        yield Finding(str(run), "belongs to a batch that is open, or whose process died. It does not count.")


def _problems_of_marks(storage: Storage, listing: Listing) -> Iterator[Finding]:
    for mark in listing.open_asides():
        try:
            MarkOwner.parse(bytes(storage.read_part(mark.name, 0, listing.stamps[mark.name].size)))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, StorageError) as error:
            yield Finding(mark.name, f"cannot be read, so no writer can tidy. Delete it: {error}")


def _problems_of_run(storage: Storage, run: RunName, stamp: Stamp, found: LedgerVerification) -> list[Finding]:
    name = str(run)
    try:
        data = storage.read_part(name, 0, stamp.size)
    except FileNotFoundError:
        # A writer has merged or deleted it meanwhile.
        return []
    except StorageError as error:
        return [Finding(name, str(error))]
    found.runs += 1
    found.ids += run.size
    found.bytes += len(data)
    return [Finding(name, text) for text in problems_of(run, data)]
