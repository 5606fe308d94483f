"""The core of the broker: opens, closes and connects its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack

from oncebus.broker.accounting import Accounting
from oncebus.broker.admission import Admission
from oncebus.broker.background import Background
from oncebus.broker.bodies import Bodies
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock
from oncebus.broker.committing import Committer
from oncebus.broker.consumers import Consumers
from oncebus.broker.entrance import Entrance
from oncebus.broker.idle import Accesses, Use
from oncebus.broker.ingest import Ingester
from oncebus.broker.latencies import Latencies
from oncebus.broker.pipeline_state import PipelineState
from oncebus.broker.refusals import Refusals
from oncebus.broker.requeue import Requeuer
from oncebus.broker.sending import SequenceNumbers
from oncebus.broker.shares import Shares
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracing
from oncebus.broker.waiting import Arrivals, Progress
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.engine import Engine
from oncebus.engine.store import Store
from oncebus.model.entities import Catalogue, Entity, Namespace, Subscription
from oncebus.model.entities.timespans import in_words
from oncebus.values.threads import Threads

log = logging.getLogger(__name__)


class Core:
    """The parts of a broker, private to this package. `open` recovers them, `start` and `close` run and stop them."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        most_bytes: int,
        silent_for: float,
        clock: Clock | None,
        threads: Threads,
    ) -> None:
        store, inbox = engine.store, engine.log
        self.engine = engine
        self.clock = clock or Clock()
        self.threads = threads
        self.clock.begin_at(engine.check_times(self.clock.now()))
        passed = self.clock.passed
        self.latencies = Latencies()
        self.arrivals = Arrivals()
        self.progress = Progress(store.progress.position(), inbox.last_commit)
        self.accesses = Accesses(passed)
        self.consumers = Consumers(passed)
        self.refusals = Refusals(self.clock.now)
        self.background = Background()
        self.store = StoreThread(store, threads.own("store"), self.arrivals.notify)
        self.bodies = Bodies(engine.bodies, self.background, threads)
        self.catalogues = Catalogues(
            engine.catalogues,
            catalogue,
            self.clock,
            self.store,
            self.arrivals,
            self.background,
            threads,
            # The entrance needs the catalogues, so it comes later.
            highest_commit=lambda: self.entrance.acceptor.highest_commit,
            changed=self._note_change,
        )
        self.tracing = Tracing(self.catalogues)
        self.wakeups = Wakeups(self.catalogues)
        use = Use(self.accesses, self.arrivals, passed)
        shares = Shares(passed, lambda entity: use.is_alone(entity, self.catalogues.current))
        sizes = {entity: store.entities.size(entity) for entity in self.catalogues.policies}
        self.accounting = Accounting(
            self.catalogues, shares, self.clock, self.progress, self.latencies, most_bytes, sizes
        )
        numbers = SequenceNumbers(
            [(mark.entity, mark.partition, mark.sequence) for mark in store.progress.highest()]
            + [(entity, partition, sequence) for (entity, partition), sequence in engine.unread.sequences.items()]
        )
        self.entrance = Entrance(
            inbox,
            threads.own("inbox"),
            self.latencies.commit,
            numbers,
            self.clock,
            self.catalogues,
            self.accounting,
            self.bodies,
        )
        self.admission = Admission(self.catalogues, self.accounting, self.accesses)
        self.committer = Committer(
            self.catalogues,
            self.clock,
            self.store,
            self.accesses,
            self.entrance,
            self.bodies,
            self.background,
            self.wakeups,
            self.progress,
            self.tracing,
            self.admission,
            store.pending.last(),
        )
        self.ingester = Ingester(
            self.catalogues,
            self.clock,
            self.store,
            self.arrivals,
            self.accounting,
            self.entrance,
            self.background,
            self.wakeups,
            self.progress,
            self.tracing,
            threads,
            engine,
            silent_for,
        )
        self.requeue = Requeuer(
            self.catalogues, self.store, self.accounting, self.accesses, self.entrance, self.bodies, self.progress
        )
        self.chores = Chores(
            self.catalogues,
            self.clock,
            self.store,
            self.accounting,
            self.accesses,
            self.entrance,
            self.bodies,
            self.background,
            self.committer,
            self.wakeups,
            self.requeue,
        )
        self.pipeline = PipelineState(
            self.clock, self.accounting, self.entrance, self.progress, self.ingester, self.chores
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        engine: Engine,
        namespace: Namespace,
        most_bytes: int,
        silent_for: float,
        clock: Clock | None,
        threads: Threads,
    ) -> Core:
        """Recover the parts of a broker. Nothing runs yet. See `Broker.open`."""
        with ExitStack() as undone:
            undone.callback(engine.close)
            catalogue = engine.catalogues.latest()
            if catalogue is None:
                catalogue = Catalogue(version=1, namespace=namespace)
                engine.catalogues.publish(catalogue)
            catalogue = catalogue.allow_windows(namespace.longest_window)
            _warn_of_long_windows(catalogue)
            _forget_deleted(engine.store, catalogue, engine.log.last_commit)
            core = cls(engine, catalogue, most_bytes, silent_for, clock, threads)
            with engine.store.transaction():
                engine.store.samples.begin(core.clock.steady())
            engine.check_bodies(core.accounting.note_left(engine.log))
            undone.pop_all()
            return core

    def start(self) -> None:
        """Start ingesting the pipeline's results and doing the chores."""
        self._tasks = [asyncio.create_task(self.ingester.run()), asyncio.create_task(self.chores.run())]

    async def close(self) -> None:
        """Stop all work, wait for writes in progress, and close the files. A second call only waits."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.accounting.shares.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.background.drain()
        await self.entrance.acceptor.close()
        try:
            now = self.clock.steady()
            await self.store.run(lambda store: store.samples.end(now))
        except Exception as error:
            # Whatever it is, the store must still be closed.
            log.warning("Cannot write the last samples: %s", error)
        try:
            await self.store.close()
        finally:
            # Receivers that still wait check again, and get `BrokerClosed`.
            self.arrivals.notify_all()

    def _note_change(self, touched: Sequence[Entity], deleted: set[int]) -> None:
        """Record that entities were created or changed, and forget those that were deleted."""
        for entity in touched:
            self.accesses.note_change(entity)
        if deleted:
            for part in (self.accesses, self.consumers, self.refusals, self.entrance.numbers, self.accounting):
                part.forget(deleted)


def _warn_of_long_windows(catalogue: Catalogue) -> None:
    """Log the entities whose windows exceed the limit: it was higher when they got them. They keep their windows."""
    most = catalogue.namespace.longest_window
    for entity in catalogue.entities.values():
        window = None if isinstance(entity, Subscription) else entity.window
        if window is not None and window > most:
            words = entity.path, in_words(window), in_words(most)
            log.warning("'%s' keeps its window of %s, although the longest window is now %s", *words)


def _forget_deleted(store: Store, catalogue: Catalogue, appended: int) -> None:
    """Finish the deletion of entities that a crash interrupted."""
    deleted = {mark.entity for mark in store.progress.highest() if catalogue.entity(mark.entity) is None}
    if deleted:
        with store.transaction():
            store.entities.delete(sorted(deleted), appended)
