"""The core of the broker: opens, closes and connects its parts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial

from oncebus.broker.acceptor import Acceptor, Answer, Appending, Charge, resolve
from oncebus.broker.admission import Admission
from oncebus.broker.agreement import check_bodies, check_inbox_is_there, check_parts
from oncebus.broker.background import Background
from oncebus.broker.backlog import Backlog, spread
from oncebus.broker.batches import Batches, IngestedBatch
from oncebus.broker.bodies import Bodies, sweep_bodies
from oncebus.broker.chores import Chores
from oncebus.broker.clock import Clock, check_stored_times
from oncebus.broker.committing import Committer
from oncebus.broker.consumers import Consumers
from oncebus.broker.errors import ServerBusy
from oncebus.broker.idle import Accesses, Use
from oncebus.broker.ingest import Ingester
from oncebus.broker.latencies import Latencies
from oncebus.broker.policies import policies_of
from oncebus.broker.refusals import Refusals
from oncebus.broker.sending import SequenceNumbers
from oncebus.broker.shares import Shares, work_of
from oncebus.broker.store_thread import StoreThread
from oncebus.broker.tracing import Tracer
from oncebus.broker.unread import inline_bytes, left_in
from oncebus.broker.waiting import Arrivals, Progress
from oncebus.engine.agreement import check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import BodyFiles, InboxReader, InboxWriter, Row
from oncebus.engine.store import IngestReport, Place, Store, SubQueue
from oncebus.ledger import Ledger
from oncebus.model.entities import Catalogue, CatalogueFiles, Entity, Namespace, Queue, Subscription, Topic
from oncebus.model.entities.detection_keys import BODY
from oncebus.model.entities.rule_parsing import check_expressions
from oncebus.model.entities.timespans import in_words
from oncebus.model.entities.weights import LIGHT, costs_by_topic, weight
from oncebus.model.messages import NOBODY
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)


class Core:
    """The parts of a broker, private to this package. `open` recovers them, `start` and `close` run and stop them."""

    def __init__(
        self,
        folders: Folders,
        catalogue: Catalogue,
        inbox: InboxWriter,
        store: Store,
        most_bytes: int,
        silent_for: float,
        clock: Clock | None,
    ) -> None:
        position = store.position()
        self.folders = folders
        # Called after each outbox entry that the store has ingested.
        self.watchers: list[Callable[[IngestReport], None]] = []
        # None unless messages are traced.
        self.tracer: Tracer | None = None
        marks = inbox.unread_marks(position)
        self.clock = clock or Clock()
        stored = {
            f"store '{folders.store}'": store.newest_time(),
            f"inbox '{folders.inbox}'": marks.time or 0,
            f"ledger '{folders.ledger}'": Ledger.open(folders.ledger).listing().horizon(),
        }
        check_stored_times(stored, self.clock.now(), folders.data, store.last_lock_end())
        self.clock.begin_at(max(0, *stored.values()))
        self.numbers = SequenceNumbers(
            [(mark.entity, mark.partition, mark.sequence) for mark in store.highest()]
            + [(entity, partition, sequence) for (entity, partition), sequence in marks.sequences.items()]
        )
        self.catalogue = catalogue
        self.policies = policies_of(catalogue)
        self._costs = costs_by_topic(catalogue, above=1)
        self.latencies = Latencies()
        self.batches = Batches()
        self.acceptor = Acceptor(inbox, self._appended, self.latencies.commit, self.clock.passed)
        self.background = Background()
        self.bodies = Bodies(BodyFiles(folders.body_files), self.background.start)
        self.arrivals = Arrivals()
        self.progress = Progress(position)
        # The last commit of earlier brokers. The store may not have ingested it yet.
        self.left_behind = inbox.last_commit
        self.backlog = Backlog()
        # The bytes on disk of each entity in the pipeline besides its messages. They count towards no quota.
        self.overhead = Backlog()
        self.accesses = Accesses(self.clock.passed)
        self.consumers = Consumers(self.clock.passed)
        self.refusals = Refusals(self.clock.now)
        self._use = Use(self.accesses, self.arrivals, self.clock.passed)
        self.shares = Shares(self.clock.passed, lambda entity: self._use.is_alone(entity, self.catalogue))
        self._files = CatalogueFiles(folders.catalogue)
        self.store = StoreThread(store)
        self._most_bytes = most_bytes
        self._sizes = {entity: store.size_of(entity) for entity in self.policies}
        self._last_sent: dict[int, int] = {}
        # Pairs (commit, version): rows after this commit name this version of the catalogue or a newer one.
        self._published: deque[tuple[int, int]] = deque()
        # On the clock of `time.monotonic`.
        self.last_ingest_at = time.monotonic() - silent_for
        self.admission = Admission(self)
        self.committer = Committer(self, self.admission, store.last_pending())
        self.ingester = Ingester(self, folders)
        self.chores = Chores(self)
        self._tasks: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        folders: Folders,
        shards: int,
        namespace: Namespace,
        most_bytes: int,
        duplicates_kept: int,
        silent_for: float,
        clock: Clock | None,
    ) -> Core:
        """Open the parts in the folders, or create them. Nothing runs yet. See `Broker.open`."""
        folders.make()
        check_inbox_is_there(folders)
        files = CatalogueFiles(folders.catalogue)
        with ExitStack() as undone:
            inbox = undone.enter_context(InboxWriter.open(folders.inbox, shards))
            store = undone.enter_context(closing(Store.open(folders.store, duplicates_kept=duplicates_kept)))
            check_no_repair(folders)
            # Check before deleting anything: the right copy of one part may need what another does not know.
            check_parts(folders, inbox.last_commit, store, files.versions())
            catalogue = files.latest()
            if catalogue is None:
                catalogue = Catalogue(version=1, namespace=namespace)
                files.publish(catalogue)
            catalogue = catalogue.allowing(namespace.longest_window)
            _warn_of_long_windows(catalogue)
            _forget_deleted(store, catalogue, inbox.last_commit)
            core = cls(folders, catalogue, inbox, store, most_bytes, silent_for, clock)
            with store.transaction():
                store.begin_samples(core.clock.steady())
            awaited = core._note_left(folders, store.position())
            check_bodies(folders, store, awaited)
            sweep_bodies(BodyFiles(folders.body_files), store, awaited)
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
        self.shares.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.background.drain()
        await self.acceptor.close()
        try:
            now = self.clock.steady()
            await self.store.run(lambda store: store.end_samples(now))
        except Exception as error:
            # Whatever it is, the store must still be closed.
            log.warning("Cannot write the last samples: %s", error)
        try:
            await self.store.close()
        finally:
            # Receivers that still wait check again, and get `BrokerClosed`.
            self.arrivals.notify_all()

    @property
    def trouble(self) -> str | None:
        """Return the error of a part of the broker that is failing right now; None if there is none."""
        return self.ingester.trouble.text or self.chores.trouble or self.clock.trouble

    def wake_chores(self) -> None:
        """Do the chores now: there may be something to requeue, or a new time at which a message falls due."""
        self.chores.wake()

    def note_settled(self, entity: int) -> None:
        """Wake receivers and requeue, because messages of an entity were abandoned, deferred or dead-lettered."""
        self.arrivals.notify([Place(entity, sub_queue) for sub_queue in SubQueue])
        policy = self.policies.get(entity)
        if policy is not None and (policy.forward_to, policy.forward_dead_letters_to) != (None, None):
            self.wake_chores()

    async def forward(self) -> None:
        """Requeue messages now, without waiting for the chores. If it fails, the chores retry."""
        # An append that the caller cancels could not be reported to the store.
        await self.background.finish(self.chores.forward())

    # Entities

    async def change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        """See `Broker.change`."""
        # In a task of its own: a published version must take effect, even if the caller is cancelled.
        return await self.background.finish(self._change(how))

    async def _change(self, how: Callable[[Catalogue, int], Catalogue]) -> Catalogue:
        async with self._changing:
            before = self.catalogue
            after = how(before, self.clock.now())
            if after is before:
                return before
            touched = [entity for entity in after.entities.values() if before.entity(entity.id) != entity]
            for entity in touched:
                for rule in entity.rules if isinstance(entity, Subscription) else ():
                    check_expressions(rule)
            await asyncio.to_thread(self._files.publish, after)
            # Rows that wait for their commit may still name the previous version.
            self._published.append((self.acceptor.highest_commit, after.version))
            self.catalogue = after
            self.policies = policies_of(after)
            self._costs = costs_by_topic(after, above=1)
            for entity in touched:
                self.accesses.note_change(entity.id)
                if isinstance(entity, Subscription):
                    self.accesses.note_change(entity.topic_id)
            deleted = {entity.id for entity in before.entities.values() if after.entity(entity.id) is None}
            if deleted:
                await self._delete(deleted, after.version)
            return after

    async def _delete(self, entities: set[int], version: int) -> None:
        # Read it before the first await: after this, requeue appends nothing of these entities any more.
        appended = self.acceptor.highest_commit
        self.accesses.forget(entities)
        self.consumers.forget(entities)
        self.refusals.forget(entities)
        self.numbers.forget(entities)
        for entity in entities:
            self._last_sent.pop(entity, None)

        def delete(store: Store) -> None:
            store.delete_entities(sorted(entities), appended)
            store.note_catalogue(version)

        try:
            await self.store.run(delete)
        except OncebusError as error:
            # The entities are deleted anyway: nobody can reach their messages, and the next start deletes those.
            log.warning("Cannot delete the messages of deleted entities; the next start deletes them: %s", error)
        # Wake the receivers that wait there, so that they get `NotFound`.
        self.arrivals.notify([Place(entity, sub_queue) for entity in entities for sub_queue in SubQueue])

    def note_access(self, entity: Entity) -> None:
        """Record that an entity is used now; for a subscription, its topic too."""
        self.accesses.note(entity.id)
        if isinstance(entity, Subscription):
            self.accesses.note(entity.topic_id)

    def counts_bodies(self, entity: int) -> bool:
        """Return whether detection counts the bodies of an entity's messages."""
        found = self.catalogue.entity(entity)
        return isinstance(found, Queue | Topic) and found.detection_key == BODY

    # Into the pipeline

    def append(self, entity: int, rows: Sequence[Row]) -> asyncio.Future[int]:
        """Append rows of an entity to the inbox. The future resolves to their commit, or raises why they were refused.

        Cancelling it does not take the rows back.
        """
        return self._append(rows, [self._charge(entity, rows)])

    def append_then(self, entity: int, rows: Sequence[Row], answer: Answer, callers: int) -> None:
        """Append rows of an entity to the inbox, on behalf of several callers. See `Acceptor.append`."""
        self._append_then(rows, [self._charge(entity, rows)], answer, callers)

    def append_together(self, rows: Sequence[Row]) -> asyncio.Future[int]:
        """Append rows of several entities, in one commit."""
        by_entity: dict[int, list[Row]] = {}
        for row in rows:
            by_entity.setdefault(row["entity"], []).append(row)
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        began = self.clock.passed()

        def answer(commit: int | Exception) -> None:
            resolve(durable, commit)
            if not isinstance(commit, Exception):
                self.trace_accepted(rows, began)

        self._append_then(rows, [self._charge(entity, some) for entity, some in by_entity.items()], answer)
        return durable

    def trace_accepted(self, rows: Sequence[Row], began: int) -> None:
        """Tell the tracer, if there is one, that rows have become durable."""
        if self.tracer is not None:
            self.tracer.accepted(self.catalogue, rows, began)

    def _charge(self, entity: int, rows: Sequence[Row]) -> Charge:
        size = sum([row["size"] for row in rows])
        return Charge(entity, len(rows), size, self.work_of(entity, len(rows), size))

    def _append(self, rows: Sequence[Row], charges: Sequence[Charge]) -> asyncio.Future[int]:
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._append_then(rows, charges, partial(resolve, durable))
        return durable

    def _append_then(self, rows: Sequence[Row], charges: Sequence[Charge], answer: Answer, callers: int = 1) -> None:
        heavy = sum([weight(each.rows, each.size, self._costs.get(each.entity, LIGHT)) for each in charges])
        self.acceptor.append(rows, charges, heavy, self.catalogue.version, answer, callers)
        for charge in charges:
            self.backlog.add(charge.entity, charge.size)
            self.shares.add(charge.entity, charge.work)

    def append_pulse(self) -> asyncio.Future[int]:
        """Send a pulse through the pipeline. The future resolves to its commit."""
        row = Row(
            entity=NOBODY,
            sequence=0,
            time=self.clock.last,
            window=0,
            message_id="",
            hops=0,
            size=0,
            head=b"",
            body=b"",
        )
        return self.append(NOBODY, [row])

    def work_of(self, entity: int, messages: int, size: int) -> int:
        """Return how much work an entity's messages with a total of `size` bytes make for the pipeline.

        See `oncebus.broker.shares`.
        """
        return work_of(messages, size, self._costs.get(entity, LIGHT))

    def _appended(self, group: Sequence[Appending], commit: int | None) -> None:
        """Account for rows that became durable with `commit`, or were refused if it is None."""
        if commit is None:
            for each in group:
                for charge in each.charges:
                    self.backlog.remove({charge.entity: charge.size})
                    self.shares.remove(charge.entity, charge.work)
                self.bodies.refused(_own_bodies(each.rows))
            return
        sizes: Counter[int] = Counter()
        rows: Counter[int] = Counter()
        charges = [charge for each in group for charge in each.charges]
        for charge in charges:
            sizes[charge.entity] += charge.size
            rows[charge.entity] += charge.rows
            if charge.entity in self.policies:
                self._last_sent[charge.entity] = commit
        self.backlog.commit(commit, sizes.items(), self.clock.passed())
        if rows.keys() != {NOBODY}:
            inline = sum([inline_bytes(each.rows) for each in group])
            self.overhead.add_commit(commit, spread(self.acceptor.last_bytes - inline, rows), self.clock.passed())
        self.shares.commit(commit, [(charge.entity, charge.work) for charge in charges], self.clock.passed())
        # The commit may have come out already: the pipeline does not wait for this call.
        self._remove_ingested(self.progress.position)

    def last_sent(self, entity: Entity) -> int:
        """Return the commit of the last message that was accepted for an entity or, for a subscription, its topic."""
        sent_to = entity.topic_id if isinstance(entity, Subscription) else entity.id
        return self._last_sent.get(sent_to, self.left_behind)

    def in_pipeline(self, entity: int) -> int:
        """Return how many bytes of an entity are accepted and not in the store yet."""
        return self.backlog.of(entity)

    def on_disk(self, entity: int) -> int:
        """Return how many bytes on disk an entity's messages in the pipeline take."""
        return self.backlog.of(entity) + self.overhead.of(entity)

    def held(self, entity: Entity) -> int:
        """Return how many bytes count towards an entity's quota, in the pipeline and (a moment ago) in the store."""
        held = self.in_pipeline(entity.id) + self._sizes.get(entity.id, 0)
        if isinstance(entity, Topic):
            held += sum(self._sizes.get(each.id, 0) for each in self.catalogue.subscriptions_of(entity))
        return held

    def check_room(self, entity: Entity, size: int) -> None:
        """Raise `ServerBusy` if `size` more bytes would exceed the limit of the pipeline or the share of the entity.

        An entity may use at most half of the part of the limit that other entities do not use.
        """
        held, of_entity = self.in_inbox, self.on_disk(entity.id)
        if held + size <= self._most_bytes < held + size + of_entity:
            raise ServerBusy(
                f"The server is busy: {of_entity} bytes of '{entity.path}' are waiting for the "
                f"pipeline, and its share of {self._most_bytes} is used up. Please retry the operation later."
            )
        if held + size > self._most_bytes:
            raise ServerBusy(
                f"The server is busy: {held} bytes are waiting for the pipeline, {self._most_bytes} is the limit. "
                "Please retry the operation later."
            )

    @property
    def in_inbox(self) -> int:
        """Return how many bytes on disk all messages in the pipeline take."""
        return self.backlog.total + self.overhead.total

    @property
    def has_room(self) -> bool:
        """Return whether the pipeline is below its limit."""
        return self.in_inbox < self._most_bytes

    def note_sizes(self, sizes: Mapping[int, int]) -> None:
        """Record the sizes of entities in the store."""
        self._sizes |= sizes

    async def refresh_sizes(self) -> None:
        """Read the sizes of all entities from the store."""
        entities = list(self.policies)
        self._sizes = await self.store.run(lambda store: {entity: store.size_of(entity) for entity in entities})

    # Out of the pipeline

    @property
    def lag(self) -> int:
        """Return how many commits wait for the pipeline."""
        return self.acceptor.last_commit - self.progress.position

    @property
    def oldest_wait(self) -> int:
        """Return how long the oldest commit has waited, in microseconds, across restarts; 0 if none is waiting."""
        oldest = self.backlog.oldest
        return 0 if oldest is None else max(self.clock.passed() - oldest, 0)

    def ingested(
        self, commit: int, report: IngestReport, sizes: Mapping[int, int], entries: int, rows: int, since_judged: int
    ) -> None:
        """Record that the store has ingested everything up to a commit, and the new sizes of entities.

        It took `entries` with a total of `rows`, which were complete for `since_judged` microseconds.
        """
        self.note_sizes(sizes)
        self.last_ingest_at = time.monotonic()
        commits = commit - self.progress.position
        self.progress.reach(commit)
        waited = self._remove_ingested(commit, since_judged)
        ingesting = min(since_judged, waited)
        self.batches.add(IngestedBatch(self.clock.passed(), entries, commits, rows, waited, ingesting))
        self.arrivals.notify(report.arrived)
        for watch in self.watchers:
            watch(report)
        if report.to_requeue or report.scheduled:
            self.wake_chores()

    def _remove_ingested(self, commit: int, since_judged: int = 0) -> int:
        """Remove everything up to a commit from the backlog, because the pipeline has processed it.

        Return how long the oldest of these commits was on its way.
        """
        now = self.clock.passed()
        waits = [now - since for since in self.backlog.take(commit)]
        self.latencies.batch.observe_all(waits)
        self.latencies.judge.observe_all(max(wait - since_judged, 0) for wait in waits)
        self.latencies.ingest.observe_all(min(wait, since_judged) for wait in waits)
        self.overhead.take(commit)
        self.shares.take(commit)
        return max(waits, default=0)

    async def forget_up_to(self, commit: int) -> None:
        """Delete commits that nobody reads any more, and the versions of the catalogue that only they name."""
        await self.acceptor.forget_up_to(commit)
        needed = None
        while self._published and self._published[0][0] <= commit:
            needed = self._published.popleft()[1]
        if needed is not None:
            await asyncio.to_thread(self._files.delete_below, needed)

    def _note_left(self, folders: Folders, position: int) -> set[str]:
        """Add the rows that an earlier broker left in the pipeline to the backlog.

        Return the body files that these rows name.
        """
        now, passed = self.clock.now(), self.clock.passed()
        body_files: set[str] = set()
        reader = InboxReader(folders.inbox)
        for left in left_in(InboxReader(folders.inbox).read(position + 1, self.left_behind)):
            if left.time is None:
                # Only pulses: nobody waits for them.
                continue
            since = passed - max(now - left.time, 0)
            self.backlog.add_commit(left.commit, left.sizes, since)
            self.overhead.add_commit(left.commit, spread(reader.length(left.commit) - left.inline, left.rows), since)
            for entity, size in left.sizes:
                self.shares.add(entity, size)
            self.shares.commit(left.commit, left.sizes, since)
            body_files.update(left.body_files)
        return body_files


def _own_bodies(rows: Sequence[Row]) -> list[str]:
    """Return the body files that were written for these rows. Those of rows with an origin belong to the store."""
    named = [row.get("body_file") for row in rows if row.get("origin_entity") is None]
    return [name for name in named if name is not None]


def _warn_of_long_windows(catalogue: Catalogue) -> None:
    """Log the entities whose windows exceed the limit: it was higher when they got them. They keep their windows."""
    most = catalogue.namespace.longest_window
    for entity in catalogue.entities.values():
        window = None if isinstance(entity, Subscription) else entity.window
        if window is not None and window > most:
            log.warning(
                "'%s' keeps its window of %s, although the longest window is now %s",
                entity.path,
                in_words(window),
                in_words(most),
            )


def _forget_deleted(store: Store, catalogue: Catalogue, appended: int) -> None:
    """Finish the deletion of entities that a crash interrupted."""
    deleted = {mark.entity for mark in store.highest() if catalogue.entity(mark.entity) is None}
    if deleted:
        with store.transaction():
            store.delete_entities(sorted(deleted), appended)
