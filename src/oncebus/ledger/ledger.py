"""Remembers accepted keys and their times, in files that are written once.

There are two kinds of writers. The tasks of a streaming query `join` a generation, and then `judge` and `tidy` their
part of each batch. A batch job opens a `LedgerBatch`. Its keys are added to the ledger all at once when its block ends
without an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncebus.detection import NO_HORIZON, Rows, Verdicts, judge, recall_nothing
from oncebus.files import TEMPORARY
from oncebus.ledger.batch import LedgerBatch, QueryBatch
from oncebus.ledger.commits import Committed, committed_in
from oncebus.ledger.description import FILE_NAME, Description, LedgerMismatch, describe_or_check, not_shared
from oncebus.ledger.forgetting import forget
from oncebus.ledger.generations import (
    REPEATABLE_BATCHES,
    Generation,
    LedgerInUse,
    Owner,
    lineage,
    oldest_repeatable,
    succeed,
    too_old,
)
from oncebus.ledger.keys import KeyColumn, key_columns, key_digests
from oncebus.ledger.listing import CONFIRMED, GENERATION, Listing
from oncebus.ledger.merging import choose_merge, choose_rewrite, merge
from oncebus.ledger.names import Position, RunName, horizon_of, parse_run_names, visible_runs
from oncebus.ledger.run import CorruptRun, Entries, RecallFrom, Run, encode_run
from oncebus.ledger.storage import Stamp, Storage, abandoned, storage_at
from oncebus.ledger.writers import Writer, claimed_at_once, newest_ended, refuse_if_live, taken_over

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The size of a ledger at one moment. Counts include tombstones, and ids that are forgotten but not yet deleted."""

    ids: int
    bytes: int
    runs: int
    generation: int
    horizon: int | None


class Decision(NamedTuple):
    """The verdicts on some rows, and `publish`, the function that makes the accepted keys durable.

    The caller must call `publish`, and must not let the verdicts out before it has returned. Another thread may call
    `publish`.
    """

    verdicts: Verdicts
    publish: Callable[[], None]


class Ledger:
    """A ledger at a path or URI.

    `Ledger.open` accesses neither disk nor network; the first writer creates the folder.
    """

    def __init__(self, storage: Storage, identity: str | None = None) -> None:
        self._storage = storage
        self.location = storage.location
        self.identity = identity
        self._open_runs, self._known_generations, self._descriptions = _opened(storage.location)

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, identity: str | None = None) -> Ledger:
        """Return the ledger at a path or URI, whether or not it exists.

        Args:
            location: A path, or a URI of an object store.
            identity: The id that the ledger must have. Every use raises `LedgerNotShared` if it has another one.
        """
        return cls(storage_at(location), identity)

    def batch(self, *, query: str | None = None, batch: int | None = None) -> LedgerBatch:
        """Start a batch that sees the keys the ledger holds now.

        Its own keys are added when the block ends without an error.

        ```python
        with Ledger.open(path).batch() as ledger:
            detect_duplicates(messages, …, ledger=ledger).write.parquet(out)
        ```

        Inside `foreachBatch`, give both arguments. If Spark repeats a batch, it then sees what the ledger held before
        its first attempt, and gets the same verdicts.

        Args: query: A name for the checkpoint. It must stay the same while the checkpoint does, and change with it. The
        query's id does this, and so does any name you choose. batch: The number of the batch, as Spark gives it to
        `foreachBatch`.
        """
        clock = time.time_ns() // 1000
        if query is None and batch is None:
            return LedgerBatch(self, clock)
        if query is None or batch is None or batch < 0:
            raise ValueError(f"Query is {query!r} and batch is {batch!r}: give both, with a batch number of 0 or more.")
        return QueryBatch(self, clock, query, batch)

    def forget(self, keys: Iterable[Any]) -> int:
        """Forget keys before their window is over: the next row with such a key is new.

        This is a small batch of its own. It is durable and visible to later batches when this returns. Rows that were
        judged before keep their verdicts.

        ```python
        Ledger.open(path).forget(["order-17"])
        Ledger.open(path).forget([("order-17", 3)])  # with two key columns
        ```

        Args:
            keys: The keys: for one key column its values, for several a tuple for each key, in their order. Values have
                the types of the columns.

        Returns:
            How many of the keys were remembered.

        Raises:
            BadKey: A key does not fit the key columns.
            LedgerInUse: The ledger belongs to a query, or another writer is writing to it.
            LedgerMismatch: There is no ledger here, or it is not one of `detect_duplicates`.
        """
        columns = self.key_columns()
        high, low = key_digests(list(keys), columns, self.secret())
        return forget(self, self.batch(), high, low)

    def key_columns(self) -> list[KeyColumn]:
        """Return the key columns. Raises `LedgerMismatch` if there is no ledger of `detect_duplicates` here."""
        stamp = self._storage.names().get(FILE_NAME)
        if stamp is None:
            raise LedgerMismatch(f"There is no ledger at '{self.location}'.")
        self._check_identity(stamp)
        return key_columns(self._description(stamp).key, self.location)

    def describe_or_check(self, key: Sequence[str], *, has_secret: bool = False) -> str:
        """Create the ledger for this key, or check an existing one. Return its id, and bind this object to it.

        Raises `LedgerMismatch` if the ledger is for another key.
        """
        self.identity = describe_or_check(self._storage, key, has_secret=has_secret)
        return self.identity

    def secret(self) -> bytes:
        """Return the secret for the digests of keys. Raises `LedgerMismatch` if this ledger has none."""
        stamp = self._storage.names().get(FILE_NAME)
        self._check_identity(stamp)
        found = None if stamp is None else self._description(stamp).secret
        if found is None:
            raise LedgerMismatch(f"Ledger '{self.location}' has no secret for the digests of keys. Start a new ledger.")
        return found

    def exists(self) -> bool:
        """Return whether a writer has created the ledger."""
        return FILE_NAME in self._storage.names()

    def newest_ended(self, is_running: Callable[[str], bool], owner: Owner) -> int | None:
        """Return the number of the newest generation if its writer is known to have ended, else None.

        Call this in the process that starts the writer, because tasks know less. `is_running` returns whether a query
        of the `owner` is running. Raises `LedgerInUse` if the newest writer is known to be running.
        """
        return newest_ended(self._list(), self.location, is_running, owner)

    def join(self, writer: Writer, batch: int) -> Generation:
        """Return the generation in which this writer writes its batch. Claims a new one unless the writer has one."""
        return self.enter(writer, batch)[0]

    def enter(self, writer: Writer, batch: int) -> tuple[Generation, Listing | None]:
        """Do the same as `join`, and also return a listing that `decide` may reuse in this batch, or None.

        The listing holds everything that the batch must see. The claim of the generation fixed which earlier batches
        count, and this generation's earlier batches were published before this batch began.
        """
        listing = self._list()
        for generation in listing.generations:
            if writer.has_claimed(generation):
                if generation is not listing.newest:
                    raise taken_over(self.location, generation, listing.generations[-1])
                self._refuse_older(listing, generation, batch)
                return generation, listing
        refuse_if_live(listing, self.location, writer)
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
        # Another task may have claimed the generation, based on a newer listing than this one.
        return self.claim(generation), None

    def judge(
        self,
        rows: Rows,
        generation: Generation,
        batch: int,
        *,
        part: int,
        parts: int,
        clock: int,
        cut: int | None = None,
    ) -> Verdicts:
        """Judge the rows of one part of a batch, and publish the accepted keys before returning.

        All rows of a key must be in one call, and all calls of a batch must give the same number of `parts`. `part` is
        a hash of the key modulo `parts`; it selects the runs to search. All writers of the ledger must use the same
        hash. A repeated call with the same rows gives the same verdicts and publishes the same file. `cut` is the time
        at which Spark cut the batch. Rows with the same batch number but a different `cut` are rejected.
        """
        decision = self.decide(rows, generation, batch, part=part, parts=parts, clock=clock, cut=cut)
        decision.publish()
        return decision.verdicts

    def decide(
        self,
        rows: Rows,
        generation: Generation,
        batch: int,
        *,
        part: int,
        parts: int,
        clock: int,
        cut: int | None = None,
        listing: Listing | None = None,
    ) -> Decision:
        """Judge like `judge`, but let the caller publish: it must call `publish` of the result.

        `listing` comes from `enter`.
        """
        if len(rows) == 0:
            return Decision(judge(rows, recall_nothing, NO_HORIZON), lambda: None)
        below = Position(generation.number, batch)
        for _ in range(_ATTEMPTS):
            found, listing = listing or self._list(), None
            newest = found.newest
            if newest is not None and generation.is_behind(newest):
                # The later writer may have merged or deleted runs that this batch saw.
                raise taken_over(self.location, generation, newest)
            self._refuse_other_cuts(found, generation, batch, {cut})
            visible = self._visible(found, generation, below)
            try:
                runs = [self._run(name) for name in visible if name.size and name.may_hold_keys_of(part, parts)]
            except FileNotFoundError:
                # The run was merged or deleted after the listing. A new listing has its replacement.
                continue
            verdicts = judge(rows, RecallFrom(runs), horizon_of(visible))
            break
        else:
            raise LedgerInUse(
                f"Ledger '{self.location}' changes faster than batch {batch} of generation {generation.number} can "
                f"read it: its runs were deleted {_ATTEMPTS} times. Start again."
            )
        entries = Entries.to_remember(rows, verdicts)
        horizon = min(int(rows.time.max()), clock)
        name = RunName(below, below, part, parts, len(entries), horizon, generation.token, cut)
        file_name, pieces = name.file_name(), encode_run(entries, horizon)
        return Decision(verdicts, lambda: self._storage.publish(file_name, pieces))

    def tidy(self, generation: Generation, batch: int, *, part: int, parts: int) -> None:
        """Delete the runs that this part no longer needs, and merge or rewrite old ones. Never changes a verdict.

        Keeps everything that a repeated batch may read: runs of the newest batches are neither merged nor deleted.
        Raises `LedgerInUse` if rows of two different batches were judged under this number.
        """
        listing = self._list()
        if listing.newest is not None and listing.newest.number > generation.number:
            # The query went back to an earlier batch, which may still need runs that look settled from here.
            return
        # Check again: two batches with one number may both have listed the folder before either published.
        self._refuse_other_cuts(listing, generation, batch, set())
        here = Position(generation.number, batch)
        visible = self._visible(listing, generation, here)
        ours = [run for run in listing.runs if run.part % parts == part and run.last < here]
        garbage = set(ours) - set(visible)

        numbers = lineage([*(g for g in listing.generations if g.number < generation.number), generation])
        newest_settled = batch - REPEATABLE_BATCHES
        settled = [run for run in visible if run.last.generation not in numbers or run.last.batch <= newest_settled]
        horizon = horizon_of(settled)
        # The horizon must survive, so one run with the greatest horizon stays. Every part must pick the same run.
        keeper = max(settled, key=lambda run: (run.horizon, run.last, run.part, str(run)), default=None)
        settled = [run for run in settled if run in set(ours)]
        try:
            expired = {run for run in settled if run != keeper and self._is_expired(run, horizon)}
            self._storage.delete([*map(str, garbage | expired), *listing.superseded()])
            mergeable = [run for run in settled if run.parts == parts and run not in expired]
            chosen = choose_merge([run.size for run in mergeable])
            if chosen is not None:
                self._merge([mergeable[at] for at in chosen], generation, horizon)
                return
            rest = [run for run in settled if run.size and run not in expired]
            sparse = choose_rewrite([(run.size, self._run(run).mostly_forgotten_from) for run in rest], horizon)
            if sparse is not None:
                self._rewrite(rest[sparse], horizon)
        except FileNotFoundError:
            # A second evaluation of the same part is tidying too. The next batch continues from what it left.
            return

    def confirm(self, *, checkpoint: str | os.PathLike[str]) -> int | None:
        """Record, according to its checkpoint, which output of the last query is committed.

        Returns the newest committed batch.

        A later query with another checkpoint then knows all keys of those batches. Without this call, the keys of the
        last batch count as never output. You can call it at any time, even while the query runs.

        Args:
            checkpoint: The query's `checkpointLocation`.

        Returns:
            The number of the newest committed batch, or None if no batch is committed yet.

        Raises:
            LedgerMismatch: The checkpoint belongs to another query than the last one.
        """
        committed = committed_in(checkpoint)
        if committed is not None:
            self.record_committed(committed)
        return None if committed is None else committed.batch

    def record_committed(self, committed: Committed) -> None:
        """Record that the output of the newest query is committed up to and including a batch.

        For callers that have their own commit log; `confirm` reads Spark's.
        """
        newest = self._list().newest
        if newest is None or newest.query != committed.query:
            raise LedgerMismatch(
                f"Ledger '{self.location}' was last written by query {newest and newest.query}, not by query "
                f"{committed.query}."
            )
        self.confirm_batch(newest, committed.batch)

    def newest(self) -> Generation | None:
        """Return the generation that was claimed last; None in a new ledger."""
        return self._list().newest

    def listing(self) -> Listing:
        """Return the current files of the ledger."""
        return self._list()

    def summary(self) -> LedgerSummary:
        """Return how many ids, bytes and runs the ledger holds now."""
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

    def is_committed(self, generation: Generation) -> bool:
        """Return whether the generation was claimed."""
        return any(other.token == generation.token for other in self._list().generations)

    def claim(self, generation: Generation) -> Generation:
        """Claim the generation, unless another task of the same writer has done so. Return the claimed generation."""
        if self._storage.publish_new(generation.file_name, [generation.to_json()]):
            return generation
        rival = Generation.from_json(bytes(self._storage.read(generation.file_name)))
        if (rival.query, rival.token) != (generation.query, generation.token):
            raise claimed_at_once(self.location, generation, rival)
        return rival

    def delete_runs(self, runs: Iterable[RunName]) -> None:
        """Delete runs that no batch uses."""
        self._storage.delete([str(run) for run in runs])

    def confirm_batch(self, generation: Generation, batch: int) -> None:
        """Record that the output of a generation is committed up to and including a batch."""
        self._storage.publish(f"confirmed-{generation.number:06d}-{batch}", [b""])

    def _refuse_older(self, listing: Listing, generation: Generation, batch: int) -> None:
        """Raise `CheckpointTooOld` if a query was restarted with the same plan from a checkpoint that is too old."""
        last = max((run.last.batch for run in listing.runs if run.last.generation == generation.number), default=batch)
        if batch < oldest_repeatable(last):
            raise too_old(self.location, generation.query, oldest_repeatable(last), batch)

    def _refuse_other_cuts(
        self, listing: Listing, generation: Generation, batch: int, own: Collection[int | None]
    ) -> None:
        here = Position(generation.number, batch)
        found = {run.cut for run in listing.runs if run.first == here and run.token == generation.token}
        if len(found.union(own)) > 1:
            raise LedgerInUse(
                f"Ledger '{self.location}' has different rows as batch {batch} of query {generation.query}. In "
                "foreachBatch, evaluate only the DataFrame of this call, before it returns, and create new threads for "
                "each call. If the query's checkpoint was restored, call detect_duplicates again."
            )

    def _visible(self, listing: Listing, generation: Generation, below: Position) -> list[RunName]:
        earlier = [other for other in listing.generations if other.number < generation.number]
        return visible_runs(listing.runs, [*earlier, generation], below)

    def _is_expired(self, name: RunName, horizon: int) -> bool:
        return name.size == 0 or self._run(name).forgotten_from <= horizon

    def _merge(self, names: Sequence[RunName], generation: Generation, horizon: int) -> None:
        entries = self._remembered(names, horizon)
        first, last, reached = names[0], names[-1], horizon_of(names)
        name = RunName(first.first, last.last, first.part, first.parts, len(entries), reached, generation.token)
        self._storage.publish(name.file_name(), encode_run(entries, reached))

    def _rewrite(self, name: RunName, horizon: int) -> None:
        entries = self._remembered([name], horizon)
        self._storage.publish(name.rewritten(len(entries)).file_name(), encode_run(entries, name.horizon))

    def _remembered(self, names: Sequence[RunName], horizon: int) -> Entries:
        """Return the entries of these runs that are not forgotten at the horizon."""
        runs = [self._run(name) for name in names]
        for run in runs:
            run.verify()
        return merge([run.entries() for run in runs], horizon)

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
            # The copy on this machine was damaged. If the file itself is damaged too, this raises.
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
            # A generation file may be deleted between listing and reading. Then list again.
            with suppress(FileNotFoundError):
                return self._list_once()

    def _list_once(self) -> Listing:
        stamps = self._storage.names()
        self._check_identity(stamps.get(FILE_NAME))
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

    def _check_identity(self, stamp: Stamp | None) -> None:
        """Raise `LedgerNotShared` if this is not the ledger that the caller asked for."""
        if self.identity is None:
            return
        found = None if stamp is None else self._description(stamp).id
        if found != self.identity:
            raise not_shared(self.location, found)

    def _description(self, stamp: Stamp) -> Description:
        known = self._descriptions.get(stamp)
        if known is None:
            known = Description.from_json(bytes(self._storage.read(FILE_NAME)), self.location)
            # A ledger without an id gets one under the same name: what has none is not kept.
            if known.id is not None:
                self._descriptions[stamp] = known
        return known

    def _generation(self, name: str, stamp: Stamp) -> Generation:
        known = self._known_generations.get(name)
        if known is None or known[0] != stamp:
            try:
                generation = Generation.from_json(bytes(self._storage.read(name)))
            except (ValueError, TypeError, KeyError) as error:
                raise LedgerMismatch(f"Ledger '{self.location}' has an unreadable '{name}': {error}") from error
            known = self._known_generations[name] = (stamp, generation)
        return known[1]


# Opening a run costs more than searching it, and Spark reuses its Python workers. So a process keeps the open runs of
# the ledgers that it used last.
_Opened = tuple[dict[str, tuple[Stamp, Run]], dict[str, tuple[Stamp, Generation]], dict[Stamp, Description]]
_OPENED: dict[str, _Opened] = {}
_MOST_OPENED = 16


def _opened(location: str) -> _Opened:
    found = _OPENED.pop(location, None) or ({}, {}, {})
    _OPENED[location] = found
    while len(_OPENED) > _MOST_OPENED:
        del _OPENED[next(iter(_OPENED))]
    return found
