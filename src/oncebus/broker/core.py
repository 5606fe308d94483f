"""The core of the broker: its composition root. It makes the parts, connects, starts and closes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from oncebus.broker.accounting import Accounting
from oncebus.broker.admission import Admission
from oncebus.broker.background import Background
from oncebus.broker.bodies import Bodies
from oncebus.broker.catalogues import Catalogues, open_catalogue
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock
from oncebus.broker.committing import Committer
from oncebus.broker.consumers import Consumers
from oncebus.broker.entities import Entities
from oncebus.broker.entrance import Entrance
from oncebus.broker.idle import Accesses, Use
from oncebus.broker.ingest import Ingester
from oncebus.broker.latencies import Latencies
from oncebus.broker.looking import Looking
from oncebus.broker.maintenance import Maintenance
from oncebus.broker.pipeline_state import PipelineState
from oncebus.broker.quarantine import Quarantine
from oncebus.broker.receivers import Receivers
from oncebus.broker.refusals import Refusals
from oncebus.broker.requeue import Requeuer
from oncebus.broker.senders import Senders
from oncebus.broker.sending import SequenceNumbers
from oncebus.broker.session_locks import SessionLocks
from oncebus.broker.shares import Shares
from oncebus.broker.snapshots import Snapshots
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracing
from oncebus.broker.waiting import Arrivals, Progress
from oncebus.broker.wakeups import Wakeups
from oncebus.engine.engine import Engine
from oncebus.model.entities import Entity, Namespace
from oncebus.values.threads import Threads

log = logging.getLogger(__name__)


class Core:
    """The parts of a broker, private to this package. It recovers them; `start` and `close` run and stop them."""

    def __init__(
        self,
        engine: Engine,
        namespace: Namespace,
        most_bytes: int,
        read_your_sends: float,
        silent_for: float,
        clock: Clock | None,
        threads: Threads,
    ) -> None:
        """Recover the parts. Nothing runs yet. See `Broker.open`."""
        files, inbox = engine.store, engine.log
        catalogue = open_catalogue(engine, namespace)
        self.engine = engine
        self.threads = threads
        self.clock = clock = clock or Clock()
        clock.begin_at(engine.check_times(clock.now()))
        self.latencies = latencies = Latencies()
        self.arrivals = arrivals = Arrivals()
        self.progress = progress = Progress(files.progress.position(), inbox.last_commit)
        self.accesses = accesses = Accesses(clock.passed)
        self.consumers = Consumers(clock.passed)
        self.refusals = Refusals(clock.now)
        self.background = background = Background()
        self.store = store = StoreThread(files, threads.own("store"), arrivals.notify)
        self.bodies = bodies = Bodies(engine.bodies, background, threads)
        self.catalogues = catalogues = Catalogues(
            engine.catalogues,
            catalogue,
            clock,
            store,
            arrivals,
            background,
            threads,
            # The entrance needs the catalogues, so it comes later.
            highest_commit=lambda: self.entrance.acceptor.highest_commit,
            changed=self._note_change,
        )
        self.tracing = tracing = Tracing(catalogues)
        self.wakeups = wakeups = Wakeups(catalogues)

        # The way in
        use = Use(accesses, arrivals, clock.passed)
        shares = Shares(clock.passed, lambda entity: use.is_alone(entity, catalogues.current))
        sizes = {entity: files.entities.size(entity) for entity in catalogues.policies}
        self.accounting = accounting = Accounting(catalogues, shares, clock, progress, latencies, most_bytes, sizes)
        self.entities = entities = Entities(
            catalogues, accesses, self.consumers, self.refusals, accounting, progress, clock, read_your_sends
        )
        numbers = SequenceNumbers(
            [(mark.entity, mark.partition, mark.sequence) for mark in files.progress.highest()]
            + [(entity, partition, sequence) for (entity, partition), sequence in engine.unread.sequences.items()]
        )
        self.entrance = entrance = Entrance(
            inbox, threads.own("inbox"), latencies.commit, numbers, clock, catalogues, accounting, bodies
        )
        admission = Admission(entities, accounting)
        self.senders = Senders(admission, entrance, bodies, store, clock, tracing, latencies.send, threads)
        self.committer = Committer(
            admission, clock, store, entrance, bodies, background, wakeups, progress, tracing, files.pending.last()
        )

        # The way out
        self.ingester = Ingester(
            catalogues,
            clock,
            store,
            arrivals,
            accounting,
            entrance,
            background,
            wakeups,
            progress,
            tracing,
            threads,
            engine,
            silent_for,
        )
        requeue = Requeuer(catalogues, store, accounting, accesses, entrance, bodies, progress)
        self.chores = Chores(
            entities, clock, store, accounting, accesses, entrance, bodies, background, self.committer, wakeups, requeue
        )
        latency = latencies.end_to_end
        self.receivers = Receivers(
            entities, clock, store, bodies, arrivals, background, self.committer, wakeups, tracing, latency
        )
        self.session_locks = SessionLocks(entities, clock, store, arrivals, background)

        # For people
        self.pipeline = PipelineState(clock, accounting, entrance, progress, self.ingester, self.chores)
        self.looking = Looking(entities, clock, store, bodies)
        self.maintenance = Maintenance(entities, clock, store, arrivals, self.chores)
        self.quarantine = Quarantine(catalogues, clock, store, wakeups)
        self.snapshots = Snapshots(engine, entrance, progress, store, background, threads)
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        with files.transaction():
            files.samples.begin(clock.steady())
        engine.check_bodies(accounting.note_left(inbox))

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
