"""Judges rows by the remembered keys, and remembers the accepted ones, in files that are written once.

There are two kinds of writers. The tasks of a streaming query `join` a generation, and then `judge` and `tidy` their
part of each batch. A batch job opens a `LedgerBatch`. Its keys are added to the ledger all at once when its block ends
without an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np

from oncebus.detection import NO_HORIZON, Policy, Question, Rows, Verdicts, judge, recall_nothing
from oncebus.detection.values import Keys
from oncebus.ledger.asides import meets
from oncebus.ledger.commits import Committed
from oncebus.ledger.description import FILE_NAME, LedgerMismatch, describe_or_check
from oncebus.ledger.generations import Generation, LedgerInUse, refuse_to_go_back, succeed, void_generation
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import LANES, Position, RunName, horizon_of, not_partitioned, without_covered
from oncebus.ledger.owner import Owner
from oncebus.ledger.run import Entries, RecallFrom, Run, checksum_of, encode_run
from oncebus.ledger.storage import storage_at
from oncebus.ledger.tidying import LedgerTidying
from oncebus.ledger.writers import (
    Predecessor,
    Writer,
    claimed_at_once,
    find_predecessor,
    refuse_unless_next,
    taken_over,
)

_T = TypeVar("_T")

_ATTEMPTS = 20
PATIENCE_SECONDS = 60.0
"""A batch waits this long for an aside to join. Then it takes the aside's number, and the aside is refused."""

_POLL_SECONDS = 0.05
_FIRST = Policy()


class Judgement(NamedTuple):
    """The verdicts on some rows, and `publish`, the function that makes the accepted keys durable.

    The caller must call `publish`, and must not let the verdicts out before it has returned. Another thread may call
    `publish`.
    """

    verdicts: Verdicts
    publish: Callable[[], None]


class TaskLedger(LedgerTidying):
    """A ledger as its writers use it. Creating the object accesses neither disk nor network."""

    @classmethod
    def at(cls, location: str, identity: str) -> TaskLedger:
        """Return the ledger at a path or URI. Every use raises `LedgerNotShared` if it has another id than this."""
        return cls(storage_at(location), identity)

    def describe_or_check(self, key: Sequence[str], *, has_secret: bool = False) -> str:
        """Create the ledger for this key, or check an existing one. Return its id, and bind this object to it.

        Raises `LedgerMismatch` if the ledger is for another key.
        """
        self.identity = describe_or_check(self._storage, key, has_secret=has_secret)
        return self.identity

    def secret(self, listing: Listing | None = None) -> bytes:
        """Return the secret for the digests of keys. Raises `LedgerMismatch` if this ledger has none.

        `listing` is any listing of this ledger; without it the ledger lists its files.
        """
        stamp = (self._storage.names() if listing is None else listing.stamps).get(FILE_NAME)
        self._check_identity(stamp)
        found = None if stamp is None else self._description(stamp).secret
        if found is None:
            raise LedgerMismatch(f"Ledger '{self.location}' has no secret for the digests of keys. Start a new ledger.")
        return found

    def _read_steadily(self, read: Callable[[Listing], _T], reader: str) -> _T:
        """Return what `read` returns; call it again with a new listing if a writer has deleted a run meanwhile."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                return read(self._list())
        raise self._too_fast(reader)

    def predecessor(self, is_running: Callable[[str], bool], owner: Owner) -> Predecessor:
        """Return what a writer that starts now follows.

        Call this in the process that starts the writer, because tasks come later and know less. `is_running` returns
        whether a query of the `owner` is running. Raises `LedgerInUse` if the newest writer is known to be running.
        """
        return find_predecessor(self._list(), self.location, is_running, owner)

    def join(self, writer: Writer, batch: int) -> Generation:
        """Return the generation in which this writer writes its batch. Claims a new one unless the writer has one."""
        return self.enter(writer, batch)[0]

    def enter(self, writer: Writer, batch: int) -> tuple[Generation, Listing | None]:
        """Do the same as `join`, and also return a listing that `judge` may reuse in this batch, or None.

        The listing holds everything that the batch must see. The claim of the generation fixed which earlier batches
        count, and this generation's earlier batches were published before this batch began.
        """
        listing = self.wait_for_asides(batch)
        for generation in reversed(listing.generations):
            if writer.has_claimed(generation):
                if generation is listing.newest:
                    self._refuse_if_over(listing, generation, batch)
                    return generation, listing
                if generation is listing.main:
                    # Only asides came later. The query continues, in a new generation that sees them.
                    break
                raise taken_over(self.location, generation, listing.generations[-1])
        else:
            refuse_unless_next(listing, self.location, writer)
        generation = succeed(
            listing.generations,
            number=listing.next_number,
            token=writer.token,
            query=writer.query,
            first_batch=batch,
            last_recorded=listing.last_recorded(),
            last_confirmed=listing.last_confirmed(),
            owner=writer.owner,
            location=self.location,
            parts=writer.parts,
        )
        # Another task may have claimed the generation, based on a newer listing than this one.
        return self.claim(generation), None

    def wait_for_asides(self, batch: int) -> Listing:
        """Return the files of the ledger at a moment when it is decided which asides the batch sees.

        An aside marks that it is about to join, and only then reads which batch the query planned last. Every later
        batch lists the ledger after the mark, waits until the aside has joined or given up, and sees it in the first
        case.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (mark := (listing := self._list()).joining(batch)) is not None:
            opened = [other for other in listing.asides if other.token == mark.token and not other.is_joining]
            if time.monotonic() > deadline or not opened or self.is_given_up(opened[0], listing):
                # Take the number, so that the aside cannot claim it any more. Nothing else changes: other tasks of this
                # batch may have published their runs before the aside left its mark.
                self.claim_first(void_generation(mark.number))
            else:
                time.sleep(_POLL_SECONDS)
        return listing

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
        policy: Policy = _FIRST,
        listing: Listing | None = None,
        drops_over: bool = False,
    ) -> Verdicts:
        """Judge the rows of one part of a batch, and publish the accepted keys before returning.

        All rows of a key must be in one call, and all calls of a batch must give the same number of `parts`. `part` is
        a hash of the key modulo `parts`; it selects the runs to search. All writers of the ledger must use the same
        hash. A repeated call with the same rows gives the same verdicts and publishes the same file. `cut` is the time
        at which Spark cut the batch. Rows with the same batch number but a different `cut` are rejected.

        If `parts` is `LANES`, then `part` is a partition of the input, and need not depend on the key. Raises
        `NotPartitioned` if another call of this batch, with other rows, has published a key of this one. Of two such
        calls, at least one sees the other's run, because both publish before they look.

        `listing` comes from `enter`; without it the ledger lists its files. If it `drops_over`, the ledger does not
        store keys that no later batch remembers.
        """
        decision = self.decide(
            rows,
            generation,
            batch,
            part=part,
            parts=parts,
            clock=clock,
            cut=cut,
            policy=policy,
            listing=listing,
            drops_over=drops_over,
        )
        decision.publish()
        if parts == LANES:
            self._refuse_shared_keys(generation, batch, part)
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
        policy: Policy = _FIRST,
        listing: Listing | None = None,
        drops_over: bool = False,
    ) -> Judgement:
        """Judge like `judge`, but let the caller publish: it must call `publish` of the result.

        `listing` comes from `enter`.
        """
        if len(rows) == 0:
            return Judgement(judge(rows, recall_nothing, NO_HORIZON, policy), lambda: None)
        below = Position(generation.number, batch)
        for _ in range(_ATTEMPTS):
            found, listing = listing or self._list(), None
            self._refuse_if_over(found, generation, batch)
            self._refuse_other_cuts(found, generation, batch, {cut})
            visible = self._visible(found, generation, below)
            try:
                runs = [self._run(name) for name in visible if name.size and name.may_hold_keys_of(part, parts)]
            except FileNotFoundError:
                # The run was merged or deleted after the listing. A new listing has its replacement.
                continue
            verdicts = judge(rows, RecallFrom(runs), horizon_of(visible), policy)
            break
        else:
            raise self._too_fast(f"batch {batch} of generation {generation.number}")
        entries = Entries.to_remember(rows, verdicts)
        horizon = min(int(rows.time.max()), clock)
        if drops_over:
            entries = entries.remembered_at(max(horizon, verdicts.horizon))
        pieces = encode_run(entries, horizon)
        origin = checksum_of(pieces)
        name = RunName(below, below, part, parts, len(entries), horizon, generation.token, cut, origin)
        file_name = name.file_name()
        return Judgement(verdicts, lambda: self._storage.publish(file_name, pieces))

    def _refuse_if_over(self, listing: Listing, generation: Generation, batch: int) -> None:
        """Raise an error if runs that the batch sees may have been merged or deleted, according to this listing.

        Call this after every listing by which rows are judged. Spark may give up an attempt that stalls, and the
        attempt goes on when the ledger has moved on.
        """
        newest = listing.newest
        if newest is not None and generation.is_behind(newest):
            raise taken_over(self.location, generation, newest)
        if generation.is_aside and generation.open_mark not in listing.stamps:
            raise LedgerInUse(
                f"The batch beside the query of ledger '{self.location}' is over. Evaluate its rows inside its block."
            )
        refuse_to_go_back(self.location, generation, batch, listing.last_batch_of(generation))

    def has_met(self, token: str, first: int, last: int) -> bool:
        """Return whether an aside and the query beside it accepted a key less than a window apart.

        `token` is the token of the aside. `first` and `last` are the batches of the query to compare it with.
        """
        for _ in range(_ATTEMPTS):
            listing = self._list()
            newest = listing.newest.number if listing.newest else 0
            tail = [
                run for run in listing.visible() if run.last.generation == newest and first <= run.last.batch <= last
            ]
            own = [run for run in listing.runs if run.token == token and run.size]
            with suppress(FileNotFoundError):
                return any(
                    meets(
                        self._run(run).entries(),
                        RecallFrom([self._run(other) for other in own if other.may_hold_keys_of(run.part, run.parts)]),
                    )
                    for run in tail
                    if run.size
                )
        raise self._too_fast(f"a batch beside query {listing.newest and listing.newest.query}")

    def mark(self, name: str, content: bytes = b"") -> None:
        """Publish a mark of an aside or a seed."""
        self._storage.publish(name, [content])

    def mark_new(self, name: str, content: bytes) -> bool:
        """Publish a mark unless it is there. Return whether it was published: of several callers, one gets True."""
        return self._storage.publish_new(name, [content])

    def read_mark(self, name: str) -> bytes:
        """Return the content of a mark; nothing if it has been deleted."""
        try:
            return bytes(self._storage.read(name))
        except FileNotFoundError:
            return b""

    def unmark(self, names: Iterable[str]) -> None:
        """Delete marks of an aside or a seed."""
        self._storage.delete(names)

    def record_committed(self, committed: Committed) -> None:
        """Record that the output of the newest query is committed up to and including a batch.

        For callers that have their own commit log; `confirm` reads Spark's.
        """
        newest = self._list().main
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

    def is_committed(self, generation: Generation) -> bool:
        """Return whether the generation was claimed. Raises `LedgerMismatch` if the ledger has forgotten."""
        listing = self._list()
        if any(other.token == generation.token for other in listing.generations):
            return True
        if generation.number < listing.next_number and generation.file_name not in listing.stamps:
            raise LedgerMismatch(
                f"Ledger '{self.location}' has deleted '{generation.file_name}', as it does after many other batches. "
                "Nothing else tells whether that batch joined."
            )
        return False

    def settle(self, generation: Generation) -> bool:
        """Return whether the generation was claimed, after a claim without an answer. If not, it never will be."""
        self.claim_first(void_generation(generation.number))
        return self.is_committed(generation)

    def claim(self, generation: Generation) -> Generation:
        """Claim the generation, unless another task of the same writer has done so. Return the claimed generation."""
        if self._storage.publish_new(generation.file_name, [generation.to_json()]):
            return generation
        rival = Generation.from_json(bytes(self._storage.read(generation.file_name)))
        if (rival.query, rival.token) != (generation.query, generation.token):
            raise claimed_at_once(self.location, generation, rival)
        return rival

    def claim_first(self, generation: Generation) -> bool:
        """Claim the generation, and return whether this call was the first to do so."""
        return self._storage.publish_new(generation.file_name, [generation.to_json()])

    def confirm_batch(self, generation: Generation, batch: int) -> None:
        """Record that the output of a generation is committed up to and including a batch."""
        self._storage.publish(f"confirmed-{generation.number:06d}-{batch}", [b""])

    def _too_fast(self, reader: str) -> LedgerInUse:
        return LedgerInUse(
            f"Ledger '{self.location}' changes faster than {reader} can read it: its runs were deleted {_ATTEMPTS} "
            "times. Start again."
        )

    def _refuse_shared_keys(self, generation: Generation, batch: int, lane: int) -> None:
        """Raise `NotPartitioned` if a run of the lane has a key that any other run of the batch has too.

        A lane may have several runs: its task may have been evaluated before, with other rows.
        """
        here = Position(generation.number, batch)

        def open_runs(listing: Listing) -> dict[RunName, Run]:
            self._refuse_if_over(listing, generation, batch)
            listed = [run for run in listing.runs if run.first == run.last == here and run.token == generation.token]
            return {name: self._run(name) for name in without_covered(listed) if name.size}

        runs = self._read_steadily(open_runs, f"batch {batch} of generation {generation.number}")
        for name, run in runs.items():
            if name.part != lane:
                continue
            entries = run.entries()
            question = at_any_time(entries.high, entries.low)
            for other in runs:
                if other != name and len(RecallFrom([runs[other]])(question).key):
                    raise not_partitioned(batch, lane, is_same_lane=other.part == lane)


def at_any_time(high: Keys, low: Keys) -> Question:
    """Return the question whether the keys are remembered, at whatever time."""
    anything = np.full(len(high), 2**62, np.int64)
    return Question(high, low, -anything, anything)
