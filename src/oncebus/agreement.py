"""Whether outbox, ledger and inbox are of one and the same time, or some of them were restored from another copy.

Each hand-over is durable before the next is begun, so a crash at any instant leaves them in one of few relations to
each other. What is in none of them was put together from several copies: to go on would lose messages, or forget ids.
`oncebus.broker.agreement` compares the store and the catalogue too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from oncebus.durations import utc_text
from oncebus.errors import OncebusError
from oncebus.folders import Folders
from oncebus.ledger import Generation, Ledger
from oncebus.outbox import Batch, Entry, Outbox

NO_LEDGER = Batch("", 0)
"""Made the entries of an outbox whose ledger was given up: no ledger has to know it."""

_LOOKS = 3


_GIVE_UP = " To go on without the ids that it held, run 'oncebus repair ledger'."


class DataMismatch(OncebusError):
    """What lies in the data folder does not belong together."""

    def __init__(self, why: str, otherwise: str = "") -> None:
        """`otherwise` is another way out, a sentence that begins with a space."""
        super().__init__(
            f"{why}: the data folder is made of different copies. Restore all of it from the same copy.{otherwise}"
        )


class RepairUnfinished(OncebusError):
    """A repair of the data folder was begun and is not done."""


def check_no_repair(folders: Folders) -> None:
    """Raise `RepairUnfinished` where a repair was begun and is not done."""
    if folders.repair.exists():
        what = json.loads(folders.repair.read_bytes())["repairs"]
        raise RepairUnfinished(
            f"The repair of data folder '{folders.data}' was interrupted. "
            f"Finish it first: oncebus repair {what} --data '{folders.data}'"
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """How far the outbox says that the pipeline has come: its newest complete entry."""

    last: int
    batch: Batch
    # The greatest time among its rows that have a key; None where none has.
    time: int | None

    @classmethod
    def of(cls, entry: Entry) -> Judged:
        """Read an entry. Raises `OutboxDamaged`."""
        rows = entry.rows()
        time = pc.max(rows.filter(rows["key"].is_valid())["time"]).as_py()
        return cls(entry.last, entry.batch(), time)


def judged_in(outbox: str | os.PathLike[str]) -> Judged | None:
    """How far the pipeline has come; None where it has never completed a batch."""
    newest = Outbox(outbox).newest()
    return None if newest is None else Judged.of(newest)


def check_ledger(outbox: str | os.PathLike[str], ledger: Ledger, time: int = 0) -> None:
    """Raise `DataMismatch` unless the ledger remembers what was judged, and the outbox has what the ledger remembers.

    `time` is that of another message with a key which is known to have been judged. A pipeline may be at work: the
    ledger is read after what it must not be older than, and before what must not be older than itself.
    """
    before = judged_in(outbox)
    seen = max(time, 0 if before is None or before.time is None else before.time)
    for _ in range(_LOOKS):
        listing = ledger.listing()
        # Runs that are being replaced while the folder is listed may be missed once.
        if max(listing.horizon(), 0) >= seen:
            break
    else:
        raise DataMismatch(
            f"Ledger '{ledger.location}' does not remember the newest message that was judged, accepted at "
            f"{utc_text(seen)}",
            _GIVE_UP,
        )
    recorded = listing.last_recorded()
    if before is not None and not knows(listing.generations, recorded, before.batch):
        raise DataMismatch(
            f"Ledger '{ledger.location}' does not know query {before.batch.query}, which made the newest entry of "
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
    """Whether a ledger was there when a batch was judged, given its generations in order."""
    if batch == NO_LEDGER or any(generation.query == batch.query for generation in generations):
        return True
    # The note of a query is deleted once many have followed it. None of these can have completed a batch, or the outbox
    # would have its entry.
    is_pruned = bool(generations) and generations[0].number > 1
    kept = [generation.keeps_below for generation in generations[1:]]
    return is_pruned and not any(kept) and not last_recorded


def is_ahead(
    generations: Sequence[Generation], last_recorded: int | None, last_confirmed: int | None, newest: Batch | None
) -> bool:
    """Whether a ledger counts keys of batches that came after the newest whose entry is complete.

    One batch more may have left runs: it was under way. They do not count, and it is judged anew.
    """
    done = -1
    if newest is not None:
        done = newest.number
        while generations and generations[0].query != newest.query:
            generations = generations[1:]
        if not generations:
            # Of a query that began after the ledger was read.
            return False
    # What a generation leaves of the one before it counts.
    for following in generations[1:]:
        if following.keeps_below > done + 1:
            return True
        done = -1
    recorded = -1 if last_recorded is None else last_recorded - 1
    confirmed = -1 if last_confirmed is None else last_confirmed
    return max(recorded, confirmed) > done
