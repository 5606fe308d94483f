"""The ledger: what was accepted, and when, in files that are written once.

Writers come in two kinds. The tasks of a streaming query `join` a generation and then `judge` and `tidy` their part
of each batch. A batch job opens a `LedgerBatch`, whose keys join the ledger all at once when its block ends well.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from oncebus.detection import NO_HORIZON, Rows, Verdicts, judge, part_of, recall_nothing
from oncebus.errors import OncebusError
from oncebus.files import TEMPORARY
from oncebus.ledger.batch import LedgerBatch
from oncebus.ledger.generations import (
    REPEATABLE_BATCHES,
    SILENT_SECONDS,
    Generation,
    LedgerInUse,
    Owner,
    lineage,
    succeed,
)
from oncebus.ledger.listing import BATCH_QUERY, CONFIRMED, GENERATION, Listing
from oncebus.ledger.merging import choose_merge, merge
from oncebus.ledger.names import Position, RunName, horizon_of, parse_run_names, visible_runs
from oncebus.ledger.run import CorruptRun, Entries, RecallFrom, Run, encode_run
from oncebus.ledger.storage import Stamp, Storage, abandoned, storage_at

FORMAT = 1
_DESCRIPTION = "ledger.json"
_ATTEMPTS = 20


class LedgerMismatch(OncebusError):
    """The ledger is not one that this caller may use."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who asks to write: one start of one query.

    `follows` is the number of a generation that is known to have ended, whatever its owner's process does.
    """

    token: str
    query: str
    owner: Owner | None
    follows: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What a ledger holds at a moment. Ids that are forgotten but not yet deleted are counted."""

    ids: int
    bytes: int
    runs: int
    generation: int
    horizon: int | None


class Ledger:
    """A ledger at a path or URI. `Ledger.open` is cheap and touches nothing; the folder is made by the first writer."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.location = storage.location
        self._open_runs, self._known_generations = _opened(storage.location)

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Ledger:
        """The ledger at a path or URI, there or not."""
        return cls(storage_at(location))

    def batch(self) -> LedgerBatch:
        """A batch that continues from what the ledger holds now. Its keys join when the block ends well:

        with Ledger.open(path).batch() as ledger:
            detect_duplicates(messages, …, ledger=ledger).write.parquet(out)
        """
        generation = self._next_batch(self._list(), uuid.uuid4().hex, Owner.this_process())
        return LedgerBatch(self, generation, clock=time.time_ns() // 1000)

    def describe_or_check(self, key: Sequence[str]) -> None:
        """Make the ledger one for this key, or raise `LedgerMismatch` if it is one for another already."""
        wanted = {"format": FORMAT, "key": list(key)}
        stamps = self._storage.names()
        if _DESCRIPTION not in stamps:
            others = [name for name in stamps if not name.startswith(TEMPORARY)]
            if others:
                raise LedgerMismatch(
                    f"Folder '{self.location}' is not a ledger: it holds '{min(others)}' but no '{_DESCRIPTION}'. "
                    "Give a folder of its own."
                )
            self._storage.publish(_DESCRIPTION, [json.dumps(wanted, indent=1).encode() + b"\n"])
            return
        try:
            found = json.loads(bytes(self._storage.read(_DESCRIPTION)))
            found_format, found_key = found["format"], found["key"]
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerMismatch(f"Ledger '{self.location}' has an unreadable '{_DESCRIPTION}': {error}") from error
        if found_format != FORMAT:
            raise LedgerMismatch(
                f"Ledger '{self.location}' has format {found_format}; this version of Oncebus writes format {FORMAT}. "
                "Use the version that made it, or start a new ledger."
            )
        if found_key != wanted["key"]:
            raise LedgerMismatch(
                f"Ledger '{self.location}' is for the key ({', '.join(map(str, found_key))}), not for "
                f"({', '.join(key)}). Use the same key columns, or start a new ledger."
            )

    def exists(self) -> bool:
        """Whether some writer has been here."""
        return _DESCRIPTION in self._storage.names()

    def newest_ended(self, is_running: Callable[[str], bool], owner: Owner) -> int | None:
        """The number of the newest generation if its writer is known to have ended, else None.

        To be asked where the writer is started, which knows more than its tasks: `is_running` tells whether a query of
        the `owner` runs. Raises `LedgerInUse` if the newest writer is known to be at work.
        """
        newest = self._list().newest
        if newest is None:
            return None
        if newest.query.startswith(BATCH_QUERY):
            return newest.number
        if newest.owner == owner:
            if is_running(newest.query):
                raise self._in_use(newest, "this process")
            return newest.number
        alive = newest.owner.is_alive() if newest.owner else None
        if alive:
            raise self._in_use(newest, f"process {newest.owner and newest.owner.pid}")
        return newest.number if alive is False else None

    def join(self, writer: Writer, batch: int) -> Generation:
        """The generation in which this writer writes its batch: the one it has claimed before, or a new one."""
        listing = self._list()
        for generation in listing.generations:
            if generation.token == writer.token:
                if generation is not listing.newest:
                    raise self._taken_over(generation, listing.generations[-1])
                return generation
        if listing.newest is not None:
            self._refuse_if_live(listing, listing.newest, writer)
        generation = succeed(
            listing.generations,
            token=writer.token,
            query=writer.query,
            first_batch=batch,
            last_recorded=listing.last_recorded(),
            last_confirmed=listing.last_confirmed(),
            owner=writer.owner,
            location=self.location,
        )
        self._storage.delete(abandoned(listing.stamps))
        self._claim(generation)
        return generation

    def judge(self, rows: Rows, generation: Generation, batch: int, *, parts: int, clock: int) -> Verdicts:
        """Judge the rows of one part of a batch, and publish what is accepted before answering.

        All rows of a key must come in one call, with the same number of `parts` for all calls of the batch. Called
        again with the same rows, gives the same verdicts and publishes the same file.
        """
        if len(rows) == 0:
            return judge(rows, recall_nothing, NO_HORIZON)
        part = self.part(rows, parts)
        below = Position(generation.number, batch)
        for _ in range(_ATTEMPTS):
            listing = self._list()
            newest = listing.newest
            if newest is not None and newest.number >= generation.number and newest.token != generation.token:
                # What comes later may have merged or deleted what this batch saw.
                raise self._taken_over(generation, newest)
            visible = self._visible(listing, generation, below)
            try:
                runs = [self._run(name) for name in visible if name.size and name.may_hold_keys_of(part, parts)]
            except FileNotFoundError:
                # Merged or deleted since it was listed: what replaces it is there now.
                continue
            verdicts = judge(rows, RecallFrom(runs), horizon_of(visible))
            break
        else:
            raise LedgerInUse(
                f"Ledger '{self.location}' changes faster than it can be read: runs that batch {batch} of generation "
                f"{generation.number} has to see were deleted {_ATTEMPTS} times. Start again."
            )
        chosen = verdicts.accepted
        accepted = Entries.of(
            rows.high[chosen],
            rows.low[chosen],
            rows.time[chosen],
            rows.sequence[chosen],
            rows.window[chosen],
            rows.keep[chosen],
        )
        horizon = min(int(rows.time.max()), clock)
        name = RunName(below, below, part, parts, len(accepted), horizon, generation.token)
        self._storage.publish(str(name), encode_run(accepted, horizon))
        return verdicts

    def tidy(self, generation: Generation, batch: int, *, part: int, parts: int) -> None:
        """Delete what this part no longer needs and merge what has grown old. Never changes a verdict.

        What may still be asked by a repeated batch stays: runs of the newest batches are neither merged nor deleted.
        """
        listing = self._list()
        here = Position(generation.number, batch)
        visible = self._visible(listing, generation, here)
        ours = [run for run in listing.runs if run.part % parts == part and run.last < here]
        garbage = set(ours) - set(visible)

        numbers = lineage([*(g for g in listing.generations if g.number < generation.number), generation])
        newest_settled = batch - REPEATABLE_BATCHES
        settled = [run for run in visible if run.last.generation not in numbers or run.last.batch <= newest_settled]
        horizon = horizon_of(settled)
        # The horizon itself must not be deleted: one run that bears it stays, the same one in the eyes of every part.
        keeper = max(settled, key=lambda run: (run.horizon, run.last, run.part, str(run)), default=None)
        settled = [run for run in settled if run in set(ours)]
        try:
            expired = {run for run in settled if run != keeper and self._is_expired(run, horizon)}
            self._storage.delete([*map(str, garbage | expired), *listing.superseded()])
            mergeable = [run for run in settled if run.parts == parts and run not in expired]
            chosen = choose_merge([run.size for run in mergeable])
            if chosen is not None:
                self._merge([mergeable[at] for at in chosen], generation)
        except FileNotFoundError:
            # A second evaluation of the same part is tidying too; the next batch will see what it left.
            return

    def confirm(self, query: str, batch: int) -> None:
        """Record that the query's output is committed up to this batch.

        A query that is stopped for good can be confirmed up to `lastProgress["batchId"]`. A later query with another
        checkpoint then knows all its keys; without it, those of its last batch are taken for never output.
        """
        listing = self._list()
        newest = listing.newest
        if newest is None or newest.query != query:
            raise LedgerMismatch(
                f"Ledger '{self.location}' was last written by query {newest and newest.query}, not by query {query}."
            )
        self._storage.publish(f"confirmed-{newest.number:06d}-{batch}", [b""])

    def newest(self) -> Generation | None:
        """Who wrote here last."""
        return self._list().newest

    def summary(self) -> LedgerSummary:
        """What the ledger holds now."""
        listing = self._list()
        newest = listing.newest.number if listing.newest else 0
        visible = visible_runs(listing.runs, listing.generations, Position(newest + 1, 0))
        return LedgerSummary(
            ids=sum(run.size for run in visible),
            bytes=sum(stamp.size for name, stamp in listing.stamps.items() if not name.startswith(TEMPORARY)),
            runs=len(visible),
            generation=newest,
            horizon=horizon_of(visible) if visible else None,
        )

    # What follows is for LedgerBatch and the methods above.

    def commit_batch(self, generation: Generation) -> None:
        """Let the runs of a batch generation count. Use `LedgerBatch`."""
        listing = self._list()
        if any(other.token == generation.token for other in listing.generations):
            return
        written = {(run.part, run.parts) for run in listing.runs if run.token == generation.token}
        if self._next_batch(listing, generation.token, generation.owner) != generation:
            self.discard_batch(generation)
            raise LedgerInUse(
                f"Ledger '{self.location}' was written by another writer while this batch was open. Nothing of the "
                "batch was recorded; run it again."
            )
        if not written:
            return
        self._claim(generation)
        for part, parts in sorted(written):
            # The batch has joined, whatever comes of this: the next writer tidies again.
            with suppress(OncebusError):
                self.tidy(generation, generation.first_batch + 1, part=part, parts=parts)

    def discard_batch(self, generation: Generation) -> None:
        """Delete what a batch generation has written, unless it is committed. Use `LedgerBatch`."""
        listing = self._list()
        if all(other.token != generation.token for other in listing.generations):
            self._storage.delete([str(run) for run in listing.runs if run.token == generation.token])

    def _next_batch(self, listing: Listing, token: str, owner: Owner | None) -> Generation:
        return succeed(
            listing.generations,
            token=token,
            query=BATCH_QUERY + token,
            first_batch=0,
            last_recorded=listing.last_recorded(),
            last_confirmed=listing.last_confirmed(),
            owner=owner,
            location=self.location,
        )

    def is_committed(self, generation: Generation) -> bool:
        """Whether the generation was claimed."""
        return any(other.token == generation.token for other in self._list().generations)

    def _claim(self, generation: Generation) -> None:
        """Claim, unless another task of the same writer has done so already."""
        if self._storage.publish_new(generation.file_name, [generation.to_json()]):
            return
        rival = Generation.from_json(bytes(self._storage.read(generation.file_name)))
        if rival.token != generation.token:
            raise LedgerInUse(
                f"Ledger '{self.location}' was claimed by query {rival.query} at the same moment as by query "
                f"{generation.query}. Stop one of the two, then start again."
            )

    def refuse_if_live(self, writer: Writer) -> None:
        """Raise `LedgerInUse` if the newest writer is another one that may still be at work."""
        listing = self._list()
        if listing.newest is not None:
            self._refuse_if_live(listing, listing.newest, writer)

    def _refuse_if_live(self, listing: Listing, newest: Generation, writer: Writer) -> None:
        if newest.query.startswith(BATCH_QUERY) or newest.number == writer.follows:
            return
        is_same_query = newest.query == writer.query
        if is_same_query and newest.owner == writer.owner:
            return
        alive = newest.owner.is_alive() if newest.owner else None
        if alive:
            is_ours = newest.owner == writer.owner
            raise self._in_use(newest, "this process" if is_ours else f"process {newest.owner and newest.owner.pid}")
        # Who restarts a query from its checkpoint owns it; of another query it takes silence to tell that it ended.
        if alive is None and not is_same_query:
            written = [stamp.modified_ns for name, stamp in listing.stamps.items() if newest.token in name]
            written.append(listing.stamps[newest.file_name].modified_ns)
            silent = time.time() - max(written) / 1e9
            if silent < SILENT_SECONDS:
                raise LedgerInUse(
                    f"Ledger '{self.location}' was written {silent:.0f} s ago by query {newest.query} from another "
                    f"place. Stop that query; {SILENT_SECONDS:.0f} s later the ledger is free."
                )

    def _in_use(self, newest: Generation, where: str) -> LedgerInUse:
        return LedgerInUse(
            f"Ledger '{self.location}' is being written by query {newest.query} of {where}. Stop it first, or use a "
            "ledger of its own for each query; if it has ended, call detect_duplicates again."
        )

    def _taken_over(self, ours: Generation, newest: Generation) -> LedgerInUse:
        return LedgerInUse(
            f"Ledger '{self.location}' has been taken over from query {ours.query} by query {newest.query} "
            f"(generation {newest.number}). Start again from the ledger as it is now; only one may write it at a time."
        )

    def part(self, rows: Rows, parts: int) -> int:
        """Which part these rows, all of one part, are."""
        with_key = np.flatnonzero(rows.has_key)
        if len(with_key) == 0:
            return 0
        return int(part_of(rows.high[with_key[:1]], rows.low[with_key[:1]], parts)[0])

    def _visible(self, listing: Listing, generation: Generation, below: Position) -> list[RunName]:
        earlier = [other for other in listing.generations if other.number < generation.number]
        return visible_runs(listing.runs, [*earlier, generation], below)

    def _is_expired(self, name: RunName, horizon: int) -> bool:
        return name.size == 0 or self._run(name).forgotten_from <= horizon

    def _merge(self, names: Sequence[RunName], generation: Generation) -> None:
        runs = [self._run(name) for name in names]
        for run in runs:
            run.verify()
        horizon = horizon_of(names)
        entries = merge([run.entries() for run in runs], horizon)
        first, last = names[0], names[-1]
        name = RunName(first.first, last.last, first.part, first.parts, len(entries), horizon, generation.token)
        self._storage.publish(str(name), encode_run(entries, horizon))

    def _run(self, name: RunName) -> Run:
        text = str(name)
        known = self._open_runs.get(text)
        stamp = self._stamps[text]
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            run = self._verified_run(text, stamp)
        except CorruptRun:
            if not self._storage.forget(text):
                raise
            # It was a copy of this machine's that was damaged; if the file is too, this says so.
            run = self._verified_run(text, stamp)
        self._open_runs[text] = (stamp, run)
        return run

    def _verified_run(self, name: str, stamp: Stamp) -> Run:
        run = Run(f"{self.location}/{name}", self._storage.read(name))
        if not self._storage.is_verified(name, stamp):
            run.verify()
            self._storage.set_verified(name, stamp)
        return run

    def _list(self) -> Listing:
        while True:
            # A generation that is needed no more may be deleted while it is read.
            with suppress(FileNotFoundError):
                return self._list_once()

    def _list_once(self) -> Listing:
        stamps = self._storage.names()
        self._stamps = stamps
        for gone in [name for name in self._open_runs if name not in stamps]:
            del self._open_runs[gone]
        generations = []
        confirmed: dict[int, int] = {}
        for name, stamp in stamps.items():
            if match := CONFIRMED.fullmatch(name):
                number, batch = int(match[1]), int(match[2])
                confirmed[number] = max(batch, confirmed.get(number, batch))
            elif GENERATION.fullmatch(name):
                generations.append(self._generation(name, stamp))
        generations.sort(key=lambda generation: generation.number)
        return Listing(stamps, generations, parse_run_names(stamps), confirmed)

    def _generation(self, name: str, stamp: Stamp) -> Generation:
        known = self._known_generations.get(name)
        if known is None or known[0] != stamp:
            try:
                generation = Generation.from_json(bytes(self._storage.read(name)))
            except (ValueError, TypeError, KeyError) as error:
                raise LedgerMismatch(f"Ledger '{self.location}' has an unreadable '{name}': {error}") from error
            known = self._known_generations[name] = (stamp, generation)
        return known[1]


# Opening a run costs more than asking it, and Spark reuses its Python workers: what is open stays so in the process,
# for the ledgers that were used last.
_Opened = tuple[dict[str, tuple[Stamp, Run]], dict[str, tuple[Stamp, Generation]]]
_OPENED: dict[str, _Opened] = {}
_MOST_OPENED = 16


def _opened(location: str) -> _Opened:
    found = _OPENED.pop(location, None) or ({}, {})
    _OPENED[location] = found
    while len(_OPENED) > _MOST_OPENED:
        del _OPENED[next(iter(_OPENED))]
    return found
