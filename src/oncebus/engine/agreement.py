"""Checks that the outbox, the ledger and the inbox belong together, and that none was restored from an older backup.

Each step is durable before the next one begins, so after a crash at any instant, their positions differ in one of a few
known ways. Any other difference means that they come from different copies of the data folder: continuing would lose
messages or forget ids. `oncebus.engine.parts` also compares the store and the catalogue.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from oncebus.engine.folders import Folders
from oncebus.engine.outbox import Batch, Entry, Outbox
from oncebus.ledger import Generation, Ledger
from oncebus.values.durations import utc_text
from oncebus.values.errors import OncebusError

NO_LEDGER = Batch("", 0)
"""Stands for the batch of outbox entries whose ledger was abandoned. No ledger needs to know this batch."""

_ATTEMPTS = 3

_GIVE_UP = " To continue without its ids, run 'oncebus repair ledger'."


class DataMismatch(OncebusError):
    """The parts of the data folder come from different copies."""

    def __init__(self, why: str, otherwise: str = "") -> None:
        """`otherwise` is an alternative fix, as a sentence that begins with a space."""
        super().__init__(
            f"{why}: the data folder mixes different backups. Restore all of it from the same backup.{otherwise}"
        )


class RepairUnfinished(OncebusError):
    """A repair of the data folder was interrupted."""


def check_no_repair(folders: Folders) -> None:
    """Raise `RepairUnfinished` if a repair was interrupted."""
    if folders.repair.exists():
        raise RepairUnfinished(
            f"The repair of data folder '{folders.data}' was interrupted. "
            f"Finish it first: oncebus repair ledger --data '{folders.data}'"
        )


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """How far the pipeline has come, according to the newest complete entry of the outbox."""

    last: int
    batch: Batch
    # The greatest time among its rows with a key; None if none has one.
    time: int | None

    @classmethod
    def of(cls, entry: Entry) -> PipelineProgress:
        """Read an entry. Raises `OutboxDamaged`."""
        time = max((row.time for row, *_ in entry.rows() if row.key is not None), default=None)
        return cls(entry.last, entry.batch(), time)


def judged_in(outbox: str | os.PathLike[str]) -> PipelineProgress | None:
    """Return how far the pipeline has come; None if it has never completed a batch."""
    newest = Outbox(outbox).newest()
    return None if newest is None else PipelineProgress.of(newest)


def check_ledger(outbox: str | os.PathLike[str], ledger: Ledger, time: int = 0) -> None:
    """Raise `DataMismatch` unless the ledger remembers all verdicts in the outbox, and the outbox has no fewer batches.

    `time` is the time of another message that has a key and a verdict, for example in the store. A pipeline may be
    running meanwhile, so the order of the reads matters: first the outbox that the ledger must cover, then the ledger,
    then the outbox that must cover the ledger.
    """
    before = judged_in(outbox)
    seen = max(time, 0 if before is None or before.time is None else before.time)
    for _ in range(_ATTEMPTS):
        listing = ledger.listing()
        # A listing may miss runs that are being replaced meanwhile, so one miss proves nothing.
        if max(listing.horizon(), 0) >= seen:
            break
    else:
        raise DataMismatch(
            f"Ledger '{ledger.location}' does not remember the newest message with a verdict, accepted at "
            f"{utc_text(seen)}",
            _GIVE_UP,
        )
    recorded = listing.last_recorded()
    if before is not None and not knows(listing.generations, recorded, before.batch):
        raise DataMismatch(
            f"Ledger '{ledger.location}' does not know query {before.batch.query}, which wrote the newest entry of "
            f"outbox '{os.fspath(outbox)}', up to commit {before.last}",
            _GIVE_UP,
        )
    after = judged_in(outbox)
    batch = None if after is None else after.batch
    if is_ahead(listing.generations, recorded, listing.last_confirmed(), batch):
        at = "has no entry" if after is None else f"ends with commit {after.last}"
        raise DataMismatch(
            f"Outbox '{os.fspath(outbox)}' {at}, but ledger '{ledger.location}' remembers batches that came later"
        )


def knows(generations: Sequence[Generation], last_recorded: int | None, batch: Batch) -> bool:
    """Return whether a ledger was used in a batch, judging by the ledger's generations, in order."""
    if batch == NO_LEDGER or any(generation.query == batch.query for generation in generations):
        return True
    # The ledger forgets a query when many others have followed. None of those can have completed a batch, or the outbox
    # would have its entry.
    is_pruned = bool(generations) and generations[0].number > 1
    kept = [generation.keeps_below for generation in generations[1:]]
    return is_pruned and not any(kept) and not last_recorded


def is_ahead(
    generations: Sequence[Generation], last_recorded: int | None, last_confirmed: int | None, newest: Batch | None
) -> bool:
    """Return whether a ledger remembers keys of batches after `newest`, the last batch with a complete outbox entry.

    One later batch may have left runs behind when it was interrupted. These are ignored, and the batch runs again.
    """
    done = -1
    if newest is not None:
        done = newest.number
        while generations and generations[0].query != newest.query:
            generations = generations[1:]
        if not generations:
            # The entry is from a query that began after the ledger was read.
            return False
    # The batches that a generation keeps of the one before it count.
    for following in generations[1:]:
        if following.keeps_below > done + 1:
            return True
        done = -1
    recorded = -1 if last_recorded is None else last_recorded - 1
    confirmed = -1 if last_confirmed is None else last_confirmed
    return max(recorded, confirmed) > done
