"""The broker: the one object that every protocol calls. Protocols only translate; the rules are here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from oncebus.broker.bodies import Received
from oncebus.broker.clock import Clock
from oncebus.broker.coalescing import Coalescer
from oncebus.broker.core import Core
from oncebus.broker.tracing import Tracer
from oncebus.broker.transactions import Transactions
from oncebus.engine.engine import Engine
from oncebus.engine.store import IngestReport
from oncebus.model.entities import Catalogue, Namespace
from oncebus.values.threads import Threads

__all__ = ["Broker", "Received"]

READ_YOUR_SENDS_SECONDS = 2.0
"""How long a query about an entity waits for messages that were accepted before it."""
DEFAULT_PIPELINE_BYTES = 4 << 30


class Broker:
    """Queues, topics and subscriptions. All calls are made from one event loop.

    When a call returns, its effect is durable: a message accepted, a delivery settled, an entity created.
    Errors are `OncebusError`s; a call that raises one has changed nothing.

    The operations are those of its parts; `__init__` lists them.
    """

    def __init__(self, core: Core) -> None:
        """Use `open` instead."""
        self._core = core
        self.clock = core.clock
        self.threads = core.threads
        # How many ids the ledger remembers. Reads the disk.
        self.remembered = core.engine.remembered
        # How long each step of a message's path has taken, and the newest batches that the store has ingested.
        self.latencies = core.latencies
        self.batches = core.ingester.batches
        # The receivers of each entity (protocols record those that stay attached), and the requests that were refused.
        self.consumers = core.consumers
        self.refusals = core.refusals
        self.pipeline = core.pipeline
        self.quarantine = core.quarantine
        self.snapshots = core.snapshots

        entities = core.entities
        self.change = core.catalogues.change
        self.held = core.accounting.held
        self.accessed_at = entities.accessed_at
        self.received_at = entities.received_at
        self.note_refusal = entities.note_refusal

        senders = core.senders
        self.send = senders.send
        self.accept = senders.accept
        self.schedule = senders.schedule
        self.cancel_scheduled = senders.cancel_scheduled
        self.sendable = senders.sendable
        self.forget = senders.forget
        self.coalescer = Coalescer(senders.accept, senders.send, core.background)

        self.receivers = receivers = core.receivers
        self.receive = receivers.receive
        self.receive_now = receivers.receive_now
        self.receive_deferred = receivers.receive_deferred
        self.dispatcher = receivers.dispatcher
        self.session_dispatcher = receivers.session_dispatcher
        self.receivable = receivers.receivable
        self.browsable = receivers.browsable
        self.peek = receivers.peek
        self.settle = receivers.settle
        self.release = receivers.release
        self.when_rolled_back = receivers.when_rolled_back
        self.renew_locks = receivers.renew_locks
        self.locked_until = receivers.locked_until

        sessions = core.session_locks
        self.accept_session = sessions.accept
        self.lock_session = sessions.lock
        self.renew_session = sessions.renew
        self.release_session = sessions.release
        self.session_state = sessions.state
        self.set_session_state = sessions.set_state
        self.sessions = sessions.names

        self.looking = looking = core.looking
        self.counts = looking.counts
        self.counts_now = looking.counts_now
        self.oldest_waiting = looking.oldest_waiting
        self.history = looking.history
        self.duplicates = looking.duplicates
        self.forgets = looking.forgets
        self.newest_forgets = looking.newest_forgets

        maintenance = core.maintenance
        self.purge = maintenance.purge
        self.delete_messages = maintenance.delete_messages
        self.discard_dead_letters = maintenance.discard_dead_letters
        self.resubmit = maintenance.resubmit

    @classmethod
    async def open(
        cls,
        engine: Engine,
        *,
        namespace: Namespace | None = None,
        most_bytes: int = DEFAULT_PIPELINE_BYTES,
        read_your_sends: float = READ_YOUR_SENDS_SECONDS,
        silent_for: float = 0.0,
        clock: Clock | None = None,
        threads: Threads | None = None,
    ) -> Self:
        """Open the broker in these folders, or create one there. Nothing runs before `start`.

        A new broker gets `namespace`; an existing one gets only its `longest_window`. The pipeline counts as having
        been silent for `silent_for` seconds. Raises `DataMismatch` if a part of the data was restored from another
        backup, `TimesAhead` if the data has times in the future.
        """
        threads = threads or Threads()
        core = partial(Core, engine, namespace or Namespace(), most_bytes, read_your_sends, silent_for, clock, threads)
        # The store may be opened in another thread than the one that uses it later: one thread at a time is enough.
        return cls(await threads.run(_open, core, engine))

    def start(self) -> None:
        """Start ingesting the pipeline's results and doing the chores."""
        self._core.start()

    async def catch_up(self, seconds: float) -> None:
        """Do what is due by the clock, without waiting for its time: a test may have moved the clock.

        Locks end, messages expire, and scheduled messages are delivered, unless that takes longer than `seconds`.
        """
        await self._core.chores.catch_up()
        await self.pipeline.wait_for(self.pipeline.last_commit, seconds)

    async def close(self) -> None:
        """Stop all work, wait for writes in progress, and close the files. A second call only waits."""
        await self._core.close()

    def trace_with(self, tracer: Tracer) -> None:
        """Report the path of all messages to a tracer from now on."""
        self._core.tracing.tracer = tracer

    def watch(self, watcher: Callable[[IngestReport], None]) -> None:
        """Call `watcher` after each outbox entry that the store has ingested."""
        self._core.ingester.watchers.append(watcher)

    @property
    def catalogue(self) -> Catalogue:
        """Return all entities as they are now."""
        return self._core.catalogues.current

    @property
    def waiters(self) -> int:
        """Return how many receivers wait for messages, apart from those of sessions."""
        return self._core.receivers.waiters

    def transactions(self) -> Transactions:
        """Return an object that holds the transactions of one client."""
        return Transactions(self._core.committer)


def _open(core: Callable[[], Core], engine: Engine) -> Core:
    try:
        return core()
    except BaseException:
        engine.close()
        raise
