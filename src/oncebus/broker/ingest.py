"""Ingests the pipeline's results from the outbox into the store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from oncebus.broker.accounting import Accounting
from oncebus.broker.background import Background
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.clock import Clock
from oncebus.broker.entrance import Entrance
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Reporter, Tracer, Tracing
from oncebus.broker.trouble import BACK_OFF_SECONDS, Trouble
from oncebus.broker.waiting import Arrivals, Progress
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.engine import Engine
from oncebus.engine.outbox import Entry
from oncebus.engine.store import IngestReport, Place, Store, SubQueue
from oncebus.model.messages import Fate, Result
from oncebus.values.threads import Threads
from oncebus.values.watching import POLL_SECONDS, Watch

IDLE_POLL_SECONDS = 0.02
"""How often to poll the outbox, if it has to be polled, while nothing is in the pipeline."""
CHECK_SECONDS = 1.0
"""How often to check for a gap in the outbox while no entry arrives."""
MOST_ROWS = 4_000
MOST_BYTES = 16 << 20
"""Entries are ingested together until they have so many rows or bytes."""
MOST_BATCHES = 100
"""The number of newest batches to remember."""
KEPT_ENTRIES = 9
"""The number of newest entries whose commits the inbox keeps, because Spark may run its newest batches again."""


class IngestedBatch(NamedTuple):
    """Outbox entries that the store ingested together. Durations are in microseconds.

    `waited` is how long the oldest commit was on its way, `ingesting` how much of that came after its verdict.
    `at` is on the broker's monotonic clock.
    """

    at: int
    entries: int
    commits: int
    rows: int
    waited: int
    ingesting: int


class Batches:
    """The newest batches, newest first."""

    def __init__(self) -> None:
        self._newest: deque[IngestedBatch] = deque(maxlen=MOST_BATCHES)

    def __iter__(self) -> Iterator[IngestedBatch]:
        return reversed(self._newest)

    def add(self, batch: IngestedBatch) -> None:
        """Add a batch, and forget the oldest if there are too many. Batches without rows, pulses, are left out."""
        if batch.rows:
            self._newest.append(batch)


class Ingester:
    """A task that ingests outbox entries in order, and deletes entries and commits that nobody needs any more.

    Waiting entries are ingested together, because a store transaction costs as much as hundreds of rows.
    """

    def __init__(
        self,
        catalogues: Catalogues,
        clock: Clock,
        store: StoreThread,
        arrivals: Arrivals,
        accounting: Accounting,
        entrance: Entrance,
        background: Background,
        wakeups: Wakeups,
        progress: Progress,
        tracing: Tracing,
        threads: Threads,
        engine: Engine,
        silent_for: float,
    ) -> None:
        """The pipeline counts as having been silent for `silent_for` seconds."""
        self._catalogues = catalogues
        self._clock = clock
        self._store = store
        self._arrivals = arrivals
        self._accounting = accounting
        self._entrance = entrance
        self._background = background
        self._wakeups = wakeups
        self._progress = progress
        self._tracing = tracing
        self._threads = threads
        self._engine = engine
        self._results = self._engine.results
        self._reporter = Reporter(self._engine.log)
        # Called after each outbox entry that the store has ingested.
        self.watchers: list[Callable[[IngestReport], None]] = []
        self.batches = Batches()
        # On the clock of `time.monotonic`.
        self.last_ingest_at = time.monotonic() - silent_for
        # The last commits of the newest ingested entries.
        self._ingested: deque[int] = deque(maxlen=KEPT_ENTRIES)
        # On the clock of `time.monotonic`.
        self._next_check = 0.0
        self._deleting: asyncio.Task[None] | None = None
        self.trouble = Trouble("Cannot ingest the pipeline's results; retrying")

    @property
    def lag(self) -> int:
        """Return how many commits wait for the pipeline."""
        return self._entrance.acceptor.last_commit - self._progress.position

    async def run(self) -> None:
        """Ingest entries until cancelled."""
        with contextlib.closing(self._results.watch()) as watch:
            try:
                while True:
                    await self._step(watch)
            finally:
                await asyncio.gather(self._deleted(), return_exceptions=True)

    async def _step(self, watch: Watch) -> None:
        """Ingest the next entries, or wait for one."""
        try:
            if self._deleting is not None and self._deleting.done():
                await self._deleted()
            entries = self._results.next_entries(self._progress.position) if self.lag else []
            if entries:
                last = await self._ingest_some(entries)
                self.trouble.over()
                # In a task of its own: the next entries need not wait for it.
                await self._deleted()
                self._deleting = asyncio.create_task(self._delete(last))
            else:
                self._check_for_gap()
                await watch.wait_in_loop(CHECK_SECONDS, poll=POLL_SECONDS if self.lag else IDLE_POLL_SECONDS)
        except Exception as error:
            # Any error: giving up would stop all deliveries.
            self.trouble.met(error)
            await asyncio.sleep(BACK_OFF_SECONDS)

    def _check_for_gap(self) -> None:
        """Raise `DataMismatch` if the next entry can never come, because a later one is already there."""
        now, position = time.monotonic(), self._progress.position
        if not self.lag or now < self._next_check:
            return
        self._next_check = now + CHECK_SECONDS
        self._engine.check_results(position)

    async def _ingest_some(self, entries: Sequence[Entry]) -> Entry:
        """Ingest the first of these entries, or several if they are small. Return the last of them."""
        try:
            return await self._ingest(entries)
        except Exception:
            if len(entries) == 1:
                raise
            # A bad entry must not stop those before it.
            return await self._ingest(entries[:1])

    async def _ingest(self, entries: Sequence[Entry]) -> Entry:
        results, some, published = await self._threads.run(_first_results, entries)
        last = some[-1]
        after = entries[0].after
        policies, now = self._catalogues.policies, self._clock.steady()
        if behind := self._clock.behind():
            results = _expiring_later(results, behind)

        def ingest(store: Store) -> tuple[IngestReport, dict[int, int]]:
            report = store.entries.ingest(results, after + 1, last.last, policies, now)
            return report, {entity: store.entities.size(entity) for entity in report.counted}

        # Wake those who wait before the work is queued, not after it is done: what they ask for then follows it in the
        # same store transaction, with one fsync and one change of thread for both.
        self._arrivals.notify(_places_of(results))
        report, sizes = await self._store.run(ingest)
        # By the wall clock, because files have no other: a step of the clock only spoils a figure.
        since_judged = max(time.time_ns() // 1000 - published, 0)
        self._accounting.note_sizes(sizes)
        self._note_ingested(last.last, report, len(some), len(results), since_judged)
        self._ingested.append(last.last)
        if (tracer := self._tracing.tracer) is not None:
            # A stop waits for it.
            await self._background.finish(self._report(tracer, results, some))
        return last

    async def _report(self, tracer: Tracer, results: Sequence[Result], entries: Sequence[Entry]) -> None:
        await self._threads.run(self._reporter.report, tracer, self._catalogues.current, results, entries)

    def _note_ingested(self, commit: int, report: IngestReport, entries: int, rows: int, since_judged: int) -> None:
        """Record that the store has ingested everything up to a commit.

        It took `entries` with a total of `rows`, which were complete for `since_judged` microseconds.
        """
        self.last_ingest_at = time.monotonic()
        commits = commit - self._progress.position
        self._progress.reach(commit)
        waited = self._accounting.take(commit, since_judged)
        ingesting = min(since_judged, waited)
        self.batches.add(IngestedBatch(self._clock.passed(), entries, commits, rows, waited, ingesting))
        self._arrivals.notify(report.arrived)
        for watch in self.watchers:
            watch(report)
        if report.to_requeue or report.scheduled:
            self._wakeups.wake_chores()

    async def _deleted(self) -> None:
        """Wait for the last deletion, if any. Raises its error."""
        deleting, self._deleting = self._deleting, None
        if deleting is not None:
            await deleting

    async def _delete(self, last: Entry) -> None:
        """Delete entries and commits, given the last ingested entry."""
        # Keep this entry until the next one: it shows a restarted pipeline how far the last one came.
        await self._threads.run(self._results.delete_up_to, last.after)
        if len(self._ingested) == self._ingested.maxlen:
            # Keep the commits of the newest batches: Spark may run these again.
            await self._entrance.acceptor.forget_up_to(self._ingested[0])
            await self._catalogues.forget_up_to(self._ingested[0])


def _first_results(entries: Sequence[Entry]) -> tuple[list[Result], Sequence[Entry], int]:
    """Return the results in the first entries, enough for a transaction of good size, and these entries.

    The third is when the last of them was published, in microseconds since 1970.
    """
    results: list[Result] = []
    some: list[Entry] = []
    size = 0
    for entry in entries:
        if len(results) >= MOST_ROWS or size >= MOST_BYTES:
            break
        of_entry = entry.rows()
        results += of_entry
        size += sum([len(row.head) + len(row.body or b"") for row, *_ in of_entry])
        some.append(entry)
    # The store must never be ahead of the outbox, whatever a power cut leaves.
    some[-1].sync()
    return results, some, some[-1].published()


def _places_of(results: Sequence[Result]) -> set[Place]:
    """Return where messages may arrive."""
    return {
        Place(destination, SubQueue.MAIN if fate is Fate.DELIVERED else SubQueue.DEAD_LETTER)
        for _, fate, destination, *_ in results
        if destination is not None
    }


def _expiring_later(results: Sequence[Result], behind: int) -> list[Result]:
    """Return the results with the expiry of their rows moved later by `behind`.

    Their stamps came from a clock that was behind steady time.
    """
    return [
        result if expires is None else result._replace(row=result.row._replace(expires=expires + behind))
        for result in results
        for expires in (result.row.expires,)
    ]
