"""The base of `Broker`: opening and closing, the entities, counts and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self, TypeVar

from oncebus.broker.addresses import parse_address
from oncebus.broker.clock import Clock
from oncebus.broker.core import Core
from oncebus.broker.looking import Looking
from oncebus.broker.quarantine import Quarantine
from oncebus.broker.store_thread import COUNTED_AT_ONCE
from oncebus.broker.tracing import Tracer
from oncebus.engine.engine import Engine
from oncebus.engine.store import NAMESPACE, Counts, IngestReport, Policy, Samples, Span, Store
from oncebus.model.entities import Catalogue, Entity, Namespace, NotFound
from oncebus.values.durations import FIRST_MOMENT
from oncebus.values.errors import OncebusError
from oncebus.values.threads import Threads

T = TypeVar("T")

READ_YOUR_SENDS_SECONDS = 2.0
"""How long a query about an entity waits for messages that were accepted before it."""
DEFAULT_PIPELINE_BYTES = 4 << 30


class BrokerBase:
    """Queues, topics and subscriptions. All calls are made from one event loop.

    When a call returns, its effect is durable: a message accepted, a delivery settled, an entity created.
    Errors are `OncebusError`s; a call that raises one has changed nothing.
    """

    def __init__(self, core: Core, read_your_sends: float) -> None:
        """Use `open` instead."""
        # How many ids the ledger remembers. Reads the disk.
        self.remembered = core.engine.remembered
        self.clock = core.clock
        self.threads = core.threads
        # How long each step of a message's path has taken, and the newest batches that the store has ingested.
        self.latencies = core.latencies
        self.batches = core.ingester.batches
        # The receivers of each entity (protocols record those that stay attached), and the requests that were refused.
        self.consumers = core.consumers
        self.refusals = core.refusals
        self._core = core
        self._store = core.store
        self._admission = core.admission
        self._committer = core.committer
        self._read_your_sends = read_your_sends
        # The wall time at which `passed` was 0. Read once, so that an access always shows the same time.
        self._began = core.clock.now() - core.clock.passed()
        self.pipeline = core.pipeline
        self.looking = Looking(core.catalogues, core.clock, core.store, core.accesses, core.bodies, self._see_sends)
        self.quarantine = Quarantine(core.catalogues, core.clock, core.store, core.wakeups)

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
        # The store may be opened in another thread than the one that uses it later: one thread at a time is enough.
        threads = threads or Threads()
        core = await threads.run(
            Core.open,
            engine,
            namespace or Namespace(),
            most_bytes,
            silent_for,
            clock,
            threads,
        )
        return cls(core, read_your_sends)

    def start(self) -> None:
        """Start ingesting the pipeline's results and doing the chores."""
        self._core.start()

    async def close(self) -> None:
        """Stop all work, wait for writes in progress, and close the files. A second call only waits."""
        await self._core.close()

    def trace_with(self, tracer: Tracer) -> None:
        """Report the path of all messages to a tracer from now on."""
        self._core.tracing.tracer = tracer

    # Entities

    @property
    def catalogue(self) -> Catalogue:
        """Return all entities as they are now."""
        return self._core.catalogues.current

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """Change the catalogue. `how` takes the current version and the time, and returns the next version or raises.

        Messages sent after this returns are accepted and routed under the new version.
        """
        return await self._core.catalogues.change(how)

    def held(self, entity: Entity) -> int:
        """Return how many bytes count towards an entity's quota, in the pipeline and (a moment ago) in the store."""
        return self._core.accounting.held(entity)

    def accessed_at(self, entity: Entity) -> int:
        """Return when an entity was last used, in microseconds since 1970.

        `FIRST_MOMENT` if it was not used since the broker started.
        """
        last = self._core.accesses.last(entity.id)
        return FIRST_MOMENT if last is None else self._began + last

    def received_at(self, entity: Entity) -> int | None:
        """Return when somebody last asked for messages of an entity, in microseconds since 1970; None if unknown.

        It is unknown until somebody asks after the broker has started.
        """
        last = self.consumers.last_asked(entity.id)
        return None if last is None else self._began + last

    def note_refusal(self, path: str, error: Exception) -> None:
        """Count a refused request for the entity at a path.

        The path is untrusted: an unauthenticated client may have made it up.
        """
        try:
            entity = self.catalogue.find(parse_address(path).path)
        except OncebusError:
            entity = None
        self.refusals.note(None if entity is None else entity.id, path, error)

    def watch(self, watcher: Callable[[IngestReport], None]) -> None:
        """Call `watcher` after each outbox entry that the store has ingested."""
        self._core.ingester.watchers.append(watcher)

    async def counts_now(self, entities: Sequence[int]) -> list[Counts]:
        """Return the counts of entities, given by their ids, without waiting for messages in the pipeline.

        The id `NAMESPACE` stands for all entities together. Its totals include those of deleted entities.
        """
        return await self._read_in_steps(lambda store, entity: store.entities.counts(entity), entities)

    async def oldest_waiting(self, entities: Sequence[int]) -> list[int | None]:
        """Return when the oldest message that waits for a receiver was enqueued, for each entity; None if none waits.

        A message that a receiver has locked, or whose session is locked, does not wait.
        """
        return await self._read_in_steps(lambda store, entity: store.entities.oldest_waiting(entity), entities)

    async def history(self, entity: Entity | None, span: Span) -> Samples:
        """Return what happened in each slot of a span up to now, for an entity or, with None, for the namespace.

        A slot is None if nothing is known about it: the broker did not run, or the entity did not exist.
        """
        number, since = (NAMESPACE, 0) if entity is None else (entity.id, entity.created_at)
        now = self.clock.steady()
        return await self._store.run(lambda store: store.samples.read(number, span, now, since))

    # For the subclasses

    async def _read_in_steps(self, read: Callable[[Store, int], T], entities: Sequence[int]) -> list[T]:
        """Call `read` for each entity, in steps: others use the store in between."""
        found: list[T] = []
        for start in range(0, len(entities), COUNTED_AT_ONCE):
            some = entities[start : start + COUNTED_AT_ONCE]
            found += await self._store.run(partial(_read_each, read=read, entities=some))
        return found

    def _policy(self, entity: Entity) -> Policy:
        """Return the policy of an entity. Raises `NotFound` if it was deleted after the caller found it."""
        found = self._core.catalogues.policies.get(entity.id)
        if found is None:
            raise NotFound(entity.path)
        return found

    async def _see_sends(self, entity: Entity) -> None:
        """Wait until messages accepted so far for an entity are visible, but no longer than `read_your_sends`."""
        await self._core.progress.wait_for(self._core.accounting.last_sent(entity), self._read_your_sends)


def _read_each(store: Store, *, read: Callable[[Store, int], T], entities: Sequence[int]) -> list[T]:
    return [read(store, entity) for entity in entities]
